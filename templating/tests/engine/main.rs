//! The engine from outside: what a caller of the crate relies on beyond the recorded vectors.

mod errors;
mod hostile;
#[cfg(feature = "certificates")]
mod keys;
mod render;

use std::sync::Arc;

use templating::{Dialect, Error, Limits, Renderer, SystemHost, Value};

/// Renders one template named `t` in Helm's dialect.
fn render_with(text: &str, data: Value, limits: Limits) -> Result<String, Error> {
    let mut set = Dialect::Helm.template_set("t");
    set.parse("t", text)?;
    let output = Renderer::new(Arc::new(set), &SystemHost, limits).render("t", &data)?;
    Ok(String::from_utf8(output).expect("the tests print text"))
}

fn render(text: &str) -> Result<String, Error> {
    render_with(text, Value::Nil, Limits::default())
}
