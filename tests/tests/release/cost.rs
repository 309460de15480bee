//! What a release costs the API server, by the audit log.

use anyhow::Result;
use testbed::audit::{Request, tally};

use crate::world::{World, config_map, deployment};

fn writes(requests: &[Request]) -> usize {
    requests
        .iter()
        .filter(|request| !matches!(request.verb.as_str(), "get" | "list" | "watch"))
        .count()
}

/// Three objects, namespace and two writes of the record, and at most nine requests in all, whether
/// the namespace is new or not. What the cluster serves is asked once for all releases.
#[tokio::test]
async fn an_install_of_three_objects_is_nine_requests() -> Result<()> {
    const USER: &str = "agent-190";
    let manifest = config_map("a", "1") + &config_map("b", "1") + &deployment("d", 1, "nginx");
    for is_new in [true, false] {
        let world = World::as_user(USER).await?;
        if !is_new {
            world.kubectl(&["create", "namespace", &world.namespace])?;
        }
        world.cluster.discovery().await?;
        let mark = world.plane.audit().mark();
        world.deploy(&manifest).await?;
        let requests = world.plane.audit().by_user(USER, mark)?;
        assert!(
            requests.len() <= 9,
            "namespace new: {is_new}: {:?}",
            tally(&requests)
        );
        // A create that meets no namespace is a write that wrote nothing.
        let done: Vec<Request> = requests
            .into_iter()
            .filter(|request| request.code < 400)
            .collect();
        assert!(writes(&done) <= 3 + 1 + 2, "{:?}", tally(&done));

        let mark = world.plane.audit().mark();
        for _ in 0..20 {
            assert!(!world.deploy(&manifest).await?.changed);
        }
        let requests = world.plane.audit().by_user(USER, mark)?;
        assert_eq!(writes(&requests), 0, "{:?}", tally(&requests));
        assert!(requests.len() <= 40, "{:?}", tally(&requests));
    }
    Ok(())
}
