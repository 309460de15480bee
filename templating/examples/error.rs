//! What goes wrong, as Go prints it, as data, and with the place pointed at: `cargo run -p templating --example error`.

use std::io::Write as _;
use std::sync::Arc;

use templating::{Dialect, ErrorKind, Limits, Renderer, SystemHost, Value};

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout();
    let mut set = Dialect::Helm.template_set("example");
    if let Err(error) = set.parse("broken", "a: {{ if }}") {
        writeln!(out, "{error}\n")?;
    }

    let text = "name: {{ .name }}\nsize: {{ len .size }}\n";
    if let Err(error) = set.parse("values.yaml", text) {
        return writeln!(out, "{error}");
    }
    let data = Value::from(serde_json::json!({ "name": "web", "size": 5 }));
    let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
    if let Err(error) = renderer.render("values.yaml", &data) {
        writeln!(out, "{error}\n")?;
        if let ErrorKind::Exec(exec) = error.kind() {
            let place = &exec.location;
            writeln!(
                out,
                "line {} column {}: {}\n",
                place.line, place.column, exec.node
            )?;
        }
        writeln!(out, "{}", error.pretty())?;
    }
    Ok(())
}
