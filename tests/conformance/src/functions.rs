//! functions.json: the names that each kind of template may call.

use templating::Dialect;
use templating::Functions;

use crate::{Case, Outcome};

pub(crate) fn run(case: &Case) -> Outcome {
    let tables = [
        ("builtin", Functions::builtin()),
        ("helm", Dialect::Helm.functions().as_ref().clone()),
        ("fleet", Dialect::Fleet.functions().as_ref().clone()),
    ];
    let compare = |(name, table): &(&str, Functions)| {
        let mut want: Vec<String> = case.parse(name).unwrap_or_default();
        want.sort();
        let got = table.names();
        let missing: Vec<_> = want
            .iter()
            .filter(|name| !got.contains(&name.as_str()))
            .collect();
        let extra: Vec<_> = got
            .iter()
            .filter(|name| !want.iter().any(|w| w == *name))
            .collect();
        match missing.is_empty() && extra.is_empty() {
            true => Outcome::Passed,
            false => Outcome::failed(format!("{name} lacks {missing:?}, adds {extra:?}"), "equal"),
        }
    };
    Outcome::all(tables.iter().map(compare))
}
