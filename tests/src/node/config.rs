//! What containerd, its network plugin and the kubelet are configured with.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::PAUSE;
use crate::cluster::GATEWAY_ADDRESS;

/// Where containerd listens.
pub(super) fn socket(directory: &Path) -> PathBuf {
    directory.join("containerd/socket")
}

/// Layers are copied (`native`), which works on any file system; scores below zero for the out-of-memory killer are not always permitted.
pub(super) fn containerd(directory: &Path) -> String {
    let own = directory.join("containerd");
    let own = own.display();
    let socket = socket(directory);
    let networks = directory.join("cni");
    let plugins = plugins();
    format!(
        r#"version = 2
root = "{own}/root"
state = "{own}/state"
[grpc]
  address = "{}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{}"
    conf_dir = "{}"
"#,
        socket.display(),
        plugins.display(),
        networks.display(),
    )
}

/// Where Debian has the network plugins, or where everybody else has them.
fn plugins() -> PathBuf {
    let debian = Path::new("/usr/lib/cni");
    match debian.join("bridge").exists() {
        true => debian.to_owned(),
        false => PathBuf::from("/opt/cni/bin"),
    }
}

/// A bridge for the pods, which ends with the network namespace.
pub(super) fn network(directory: &Path) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "testbed",
        "plugins": [{
            "type": "bridge", "bridge": "testbed0", "isGateway": true, "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "dataDir": directory.join("cni-data"),
                "ranges": [[{ "subnet": "10.244.0.0/24" }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    })
}

pub(super) fn kubelet(directory: &Path, cgroup: &str) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": false,
        "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
        "containerRuntimeEndpoint": format!("unix://{}", socket(directory).display()),
        "clusterDNS": [GATEWAY_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "podLogsDir": directory.join("kubelet/logs"),
        // A small disk of a busy machine is no reason to evict what is tested.
        "evictionHard": { "nodefs.available": "0%", "imagefs.available": "0%", "memory.available": "0%" },
        "imageGCHighThresholdPercent": 100,
        "maxPods": 200,
    })
}
