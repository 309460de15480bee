//! Functions of the caller's own beside Go's: a closure's argument types are its Go signature.
//! `cargo run -p templating --example function`.

use std::io::Write as _;
use std::sync::Arc;

use templating::funcs::Rest;
use templating::{Error, Functions, Limits, Map, Renderer, State, Str, SystemHost, TemplateSet};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut functions = Functions::builtin();
    functions.add("shout", |text: Str| {
        format!("{}!", text.to_string().to_uppercase())
    });
    functions.add("total", |numbers: Rest<i64>| numbers.iter().sum::<i64>());
    // What can become large asks the limits first.
    functions.add(
        "stars",
        |state: &mut State<'_>, count: i64| -> Result<String, Error> {
            let count = usize::try_from(count).map_err(|_| Error::message("too few stars"))?;
            state.spend_bytes(count as u64)?;
            Ok("*".repeat(count))
        },
    );

    let mut set = TemplateSet::new("example", Arc::new(functions));
    set.parse("t", "{{ .name | shout }} {{ total 1 2 3 }} {{ stars 5 }}\n")?;
    let data = Map::from_iter([("name", "world")]).into();
    let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
    std::io::stdout().write_all(&renderer.render("t", &data)?)?;
    Ok(())
}
