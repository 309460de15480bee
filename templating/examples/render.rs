//! Parses some templates and renders one with data: `cargo run -p templating --example render`.

use std::io::Write as _;
use std::sync::Arc;

use templating::{Dialect, Limits, Renderer, SystemHost, Value};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut set = Dialect::Helm.template_set("example");
    set.parse(
        "_labels",
        r#"{{ define "labels" }}app: {{ .name | quote }}{{ end }}"#,
    )?;
    set.parse(
        "service.yaml",
        "metadata:\n  labels:\n    {{- include \"labels\" . | nindent 4 }}\nports: {{ .ports | toJson }}\n",
    )?;

    let data = Value::from(serde_json::json!({ "name": "web", "ports": [80, 443] }));
    let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
    let output = renderer.render("service.yaml", &data)?;
    std::io::stdout().write_all(&output)?;
    Ok(())
}
