//! The two clusters as they are before anybody does anything.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{WORKSPACE, World};
use crate::apiserver::{Actor, Server};
use crate::desired::{CANARY, CLUSTER, NAMESPACES, SYSTEM};

impl World {
    pub(super) fn set_up(&self) {
        let create = |server: &Server, path: &str, body: Value| {
            let answer = server.act(Actor::System, "POST", path, body);
            assert!(answer.is_ok(), "{path}: {:?}", answer.value());
        };
        for server in [&self.local, &self.upstream] {
            for name in [
                "kube-system",
                "default",
                SYSTEM,
                NAMESPACES[0],
                CLUSTER,
                WORKSPACE,
            ] {
                let body = json!({"metadata": {"name": name}});
                create(server, "/api/v1/namespaces", body);
            }
        }
        let accounts = format!("/api/v1/namespaces/{SYSTEM}/serviceaccounts");
        for name in ["deployer", "other", "fleet-default"] {
            if name != "fleet-default" || self.setting.has_fallback {
                create(&self.local, &accounts, json!({"metadata": {"name": name}}));
            }
        }
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "default",
            "clusters": [{"name": "cluster", "cluster": {"server": "https://upstream"}}],
            "contexts": [{"name": "default",
                          "context": {"cluster": "cluster", "namespace": CLUSTER, "user": "user"}}],
            "users": [{"name": "user", "user": {"token": "open"}}],
        });
        let data = [
            ("kubeconfig", kubeconfig.to_string()),
            ("deploymentNamespace", CLUSTER.to_owned()),
            ("clusterNamespace", WORKSPACE.to_owned()),
            ("clusterName", "c1".to_owned()),
        ];
        let data: BTreeMap<_, _> = data
            .into_iter()
            .map(|(key, value)| (key, STANDARD.encode(value)))
            .collect();
        // As an agent leaves it that has started before.
        let origin = json!({"fleet.cattle.io/bootstrap-digest": "none"});
        create(
            &self.local,
            &format!("/api/v1/namespaces/{SYSTEM}/secrets"),
            json!({"metadata": {"name": "fleet-agent", "annotations": origin}, "data": data}),
        );
        create(
            &self.upstream,
            &format!("/apis/fleet.cattle.io/v1alpha1/namespaces/{WORKSPACE}/clusters"),
            json!({"metadata": {"name": "c1"}, "spec": {"clientID": "c1"}}),
        );
        let path =
            format!("/apis/fleet.cattle.io/v1alpha1/namespaces/{WORKSPACE}/clusters/c1/status");
        let status = json!({"status": {"display": {}}});
        self.upstream.act(Actor::System, "PATCH", &path, status);
        for number in 0..2 {
            let secret = json!({
                "metadata": {"name": format!("pull{number}")},
                "stringData": {"token": format!("{CANARY}pull{number}-0")},
            });
            let path = format!("/api/v1/namespaces/{CLUSTER}/secrets");
            create(&self.upstream, &path, secret);
        }
        self.upstream.lock().tokens.insert("open".to_owned());
        if self.setting.has_own {
            self.own();
        }
    }
}
