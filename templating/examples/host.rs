//! A world of the caller's own: a clock that stands still and a cluster with one object. With such a host a render always
//! gives the same. `cargo run -p templating --example host`.

use std::io::Write as _;
use std::sync::Arc;

use templating::{Dialect, Error, Host, Limits, Renderer, Value};

struct Frozen;

impl Host for Frozen {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        buffer.fill(7);
    }

    fn lookup(
        &self,
        _api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<serde_json::Value, Error> {
        Ok(match (kind, namespace, name) {
            ("Secret", "default", "db") => serde_json::json!({ "data": { "user": "YWRtaW4=" } }),
            _ => serde_json::json!({}),
        })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut set = Dialect::Helm.template_set("example");
    set.parse(
        "t",
        r#"{{ now | date "2006-01-02" }} {{ (lookup "v1" "Secret" "default" "db").data.user | b64dec }} {{ uuidv4 }}
"#,
    )?;
    let mut renderer = Renderer::new(Arc::new(set), &Frozen, Limits::default());
    std::io::stdout().write_all(&renderer.render("t", &Value::Nil)?)?;
    Ok(())
}
