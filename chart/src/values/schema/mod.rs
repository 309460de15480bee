//! Checking values against `values.schema.json`.
//!
//! A validator of our own in the shape of santhosh-tekuri/jsonschema v6, which Helm uses: it reports
//! the same failures in the same words, for drafts 4, 6, 7, 2019-09 and 2020-12. Files are never
//! read, addresses only where [`RemoteSchemas`] are given: a chart's schema that refers to them fails.
//! Where the library iterates over a map in random order, we go by name.

mod compile;
mod compiled;
mod document;
mod draft;
mod failure;
mod format;
mod number;
mod remote;
mod resource;
mod validate;
mod work;

use std::fmt;

use golib::budget::Allowance;
use golib::json::go_type;
use serde_json::Value;

use crate::chart::Chart;
use crate::warning::Warnings;
use remote::Fetches;
pub use remote::RemoteSchemas;
use resource::CompileError;
use work::Work;

/// The name a schema goes by in messages.
const SCHEMA_URL: &str = "file:///values.schema.json";
/// Bytes of a schema's text that are read in about the time a schema takes.
const DECODED_BYTES_PER_STEP: usize = 16;

/// Values that do not fit their schemas, chart by chart. The text is Helm's and shows the values that
/// do not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaErrors {
    failures: Vec<SchemaFailure>,
}

/// Values of one chart that do not fit its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SchemaFailure {
    chart: String,
    text: String,
    /// The text without values.
    masked: String,
}

impl SchemaErrors {
    /// The charts whose values do not fit.
    pub fn charts(&self) -> impl Iterator<Item = &str> {
        self.failures.iter().map(|failure| failure.chart.as_str())
    }

    /// The text with the places of the values that do not fit, without the values.
    ///
    /// ```
    /// # use chart::{File, loader::load_files, values::schema};
    /// # let files = vec![
    /// #     File::new("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
    /// #     File::new("values.schema.json", r#"{"properties": {"password": {"maxLength": 3}}}"#),
    /// # ];
    /// # let chart = load_files(files, &mut chart::Warnings::default())?;
    /// # let values = serde_json::json!({"password": "hunter2"});
    /// let misfit = schema::validate(&chart, &values, None, &mut chart::Warnings::default()).unwrap_err();
    /// assert_eq!(misfit.charts().collect::<Vec<_>>(), ["web"]);
    /// assert!(misfit.masked().contains("/password") && !misfit.masked().contains("hunter2"));
    /// # Ok::<(), chart::loader::LoadError>(())
    /// ```
    pub fn masked(&self) -> String {
        let lines = self
            .failures
            .iter()
            .map(|failure| format!("{}:\n{}", failure.chart, failure.masked));
        lines.collect()
    }
}

impl fmt::Display for SchemaErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failures
            .iter()
            .try_for_each(|failure| write!(f, "{}:\n{}", failure.chart, failure.text))
    }
}

impl std::error::Error for SchemaErrors {}

/// Checks the coalesced values of a chart and its dependencies against their schemas. Without `remote` nothing is fetched: a
/// schema that refers to an address elsewhere is broken.
///
/// ```
/// use chart::{File, loader::load_files, values::schema};
/// use serde_json::json;
///
/// let files = vec![
///     File::new("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
///     File::new("values.schema.json", r#"{"properties": {"replicas": {"type": "integer"}}}"#),
/// ];
/// let chart = load_files(files, &mut chart::Warnings::default())?;
/// let misfit = schema::validate(&chart, &json!({"replicas": "many"}), None, &mut chart::Warnings::default());
/// assert_eq!(misfit.unwrap_err().to_string(), "web:\n- at '/replicas': got string, want integer\n");
/// # Ok::<(), chart::loader::LoadError>(())
/// ```
///
/// # Errors
/// Values do not fit, or a schema is broken. All charts are checked, until there is more to do than may be for all of them together.
pub fn validate(
    chart: &Chart,
    values: &Value,
    remote: Option<&dyn RemoteSchemas>,
    warnings: &mut Warnings,
) -> Result<(), SchemaErrors> {
    let allowance = Allowance::default();
    validate_within(chart, values, remote, &allowance, &|| true, warnings)
}

/// Like [`validate`], with a limit on what each schema may take once it is read. All is given up as too complex once `is_wanted` says no.
///
/// # Errors
/// As of [`validate`].
pub(crate) fn validate_within(
    chart: &Chart,
    values: &Value,
    remote: Option<&dyn RemoteSchemas>,
    allowance: &Allowance,
    is_wanted: &dyn Fn() -> bool,
    warnings: &mut Warnings,
) -> Result<(), SchemaErrors> {
    let mut work = Work::new(is_wanted);
    let mut failures = Vec::new();
    let fetches = remote.map(Fetches::new);
    let sources = Sources {
        remote: fetches.as_ref(),
        allowance,
    };
    collect(chart, values, sources, &mut work, warnings, &mut failures);
    if work.is_used_up() {
        // As of a chart alone that is too complex nothing else is said.
        failures.drain(..failures.len().saturating_sub(1));
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(SchemaErrors { failures })
    }
}

/// Where schemas are had from that a schema refers to, and what each may take with them.
#[derive(Clone, Copy)]
struct Sources<'s> {
    remote: Option<&'s Fetches<'s>>,
    allowance: &'s Allowance,
}

fn collect(
    chart: &Chart,
    values: &Value,
    sources: Sources<'_>,
    work: &mut Work<'_>,
    warnings: &mut Warnings,
    failures: &mut Vec<SchemaFailure>,
) {
    if let Some(schema) = &chart.schema
        && let Err(Misfit { text, masked }) = validate_one(schema, values, sources, work, warnings)
    {
        failures.push(SchemaFailure {
            chart: chart.name().to_owned(),
            text,
            masked,
        });
    }
    for dependency in &chart.dependencies {
        // The chart that took the last of it says so.
        if work.is_used_up() {
            return;
        }
        match values.get(dependency.name()) {
            None | Some(Value::Null) => {}
            Some(table @ Value::Object(_)) => {
                collect(dependency, table, sources, work, warnings, failures);
            }
            Some(other) => {
                let text = format!(
                    "invalid type for values: expected object (map), got {}\n",
                    go_type(other)
                );
                failures.push(SchemaFailure {
                    chart: dependency.name().to_owned(),
                    masked: text.clone(),
                    text,
                });
            }
        }
    }
}

/// What Helm prints below the chart's name, with the values and without.
struct Misfit {
    text: String,
    masked: String,
}

impl Misfit {
    /// About the schema: there are no values in it.
    fn of_schema(text: String, work: &mut Work<'_>) -> Self {
        let text = match work.hold_bytes(text.len()) {
            true => text,
            false => CompileError::TooComplex.to_string(),
        };
        Self {
            masked: text.clone(),
            text,
        }
    }
}

/// Checks values against one schema.
fn validate_one(
    schema: &[u8],
    values: &Value,
    Sources { remote, allowance }: Sources<'_>,
    work: &mut Work<'_>,
    warnings: &mut Warnings,
) -> Result<(), Misfit> {
    work.begin_schema();
    let mut budget = allowance.budget(document::MAX_DECODED);
    work.step(schema.len() / DECODED_BYTES_PER_STEP);
    let document = document::decode(schema, &mut budget);
    let document = document.map_err(|text| Misfit::of_schema(text, work))?;
    let set = compile::compile_document(SCHEMA_URL, document, (remote, budget), work, warnings)
        .map_err(|error| Misfit::of_schema(error.to_string(), work))?;
    let root = compiled::Ref { set: &set, id: 0 };
    validate::validate(values, root, None, work).map_err(|failure| {
        let heading = format!("jsonschema validation failed with '{SCHEMA_URL}#'\n");
        let below = |text: String| format!("{}\n", text.strip_prefix(&heading).unwrap_or(&text));
        Misfit {
            text: below(failure.to_string()),
            masked: below(failure.masked()),
        }
    })
}

#[cfg(test)]
mod tests {
    use golib::budget::Allowance;
    use serde_json::json;

    use super::{Sources, Work, validate_one};

    /// Whether values fit, or why not.
    fn checked(schema: &str, values: &serde_json::Value) -> Result<(), String> {
        let mut warnings = crate::Warnings::default();
        let sources = Sources {
            remote: None,
            allowance: &Allowance::default(),
        };
        let mut work = Work::new(&|| true);
        let fit = validate_one(schema.as_bytes(), values, sources, &mut work, &mut warnings);
        fit.map_err(|misfit| misfit.text)
    }

    /// Why values that are empty do not fit.
    fn refusal(schema: &str) -> String {
        checked(schema, &json!({})).unwrap_err()
    }

    #[test]
    fn a_pattern_that_takes_long_is_given_up() {
        let pattern = format!("[a-m]{}[0-9]", "[a-z]{999}".repeat(8));
        let text = "a".repeat(20_000);
        for (schema, values) in [
            (
                json!({"additionalProperties": {"pattern": pattern}}),
                json!({"a": text}),
            ),
            (
                json!({"patternProperties": {(pattern): true}}),
                json!({(text): 1}),
            ),
        ] {
            let error = checked(&schema.to_string(), &values).unwrap_err();
            assert!(error.contains("too complex"), "{error}");
        }
        let name = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$";
        let schema = json!({"items": {"pattern": name}}).to_string();
        let names = json!(vec!["a".repeat(60); 1_000]);
        checked(&schema, &names).unwrap();
    }

    #[test]
    fn the_place_of_a_property_name_is_that_of_its_object() {
        let names = json!({"items": {"propertyNames": {"maxLength": 1}}});
        let schema = json!({"properties": {"k": names}}).to_string();
        let refusal = checked(&schema, &json!({"k": [{"ab": 1}, {"c": 1}]})).unwrap_err();
        assert!(refusal.contains("at '/k/0': invalid propertyName 'ab'"));
    }

    #[test]
    fn a_schema_that_doubles_at_every_step_is_given_up() {
        let mut definitions = serde_json::Map::new();
        for level in 0..40 {
            let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
            definitions.insert(format!("l{level}"), json!({"allOf": [next, next]}));
        }
        definitions.insert("l40".to_owned(), json!({"type": "object"}));
        let schema = json!({"$ref": "#/$defs/l0", "$defs": definitions}).to_string();
        assert!(refusal(&schema).contains("too complex"));
    }

    /// Which of a chart's hundred names in another one is told to be too complex.
    fn too_complex_alias(schema: &serde_json::Value, values: &serde_json::Value) -> String {
        let alias = |at: usize| {
            let mut chart = crate::Chart::default();
            chart.metadata.name = format!("s{at:03}");
            chart.schema = Some(schema.to_string().into());
            chart
        };
        let umbrella = crate::Chart {
            dependencies: (0..100).map(alias).collect(),
            ..crate::Chart::default()
        };
        let values = (0..100).map(|at| (format!("s{at:03}"), values.clone()));
        let values = serde_json::Value::Object(values.collect());
        let mut warnings = crate::Warnings::default();
        let misfits = super::validate(&umbrella, &values, None, &mut warnings).unwrap_err();
        assert!(misfits.masked().contains("too complex"));
        let charts: Vec<&str> = misfits.charts().collect();
        charts.join(", ")
    }

    #[test]
    fn all_charts_together_have_room_for_failures() {
        let schema = json!({"items": {"const": "x".repeat(10_000)}});
        let chart = too_complex_alias(
            &json!({"properties": {"a": schema}}),
            &json!({"a": vec![1; 100]}),
        );
        assert_eq!(chart, "s016");
        // What is said of a broken schema is kept as well.
        let chart = too_complex_alias(&json!({"$ref": "y".repeat(1 << 20)}), &json!({}));
        assert_eq!(chart, "s007");
    }

    #[test]
    fn all_charts_together_have_steps() {
        let words: Vec<String> = (0..16_000).map(|at| format!("w{at}")).collect();
        let schema = json!({"properties": {"a": {"items": {"enum": words}}}});
        let chart = too_complex_alias(&schema, &json!({"a": vec!["w0"; 500]}));
        assert_eq!(chart, "s009");
    }

    /// What failed of alternatives where another one fits is not told of.
    #[test]
    fn a_chart_that_fits_takes_no_room() {
        let schema =
            json!({"items": {"anyOf": [{"const": "x".repeat(10_000)}, {"type": "integer"}]}});
        let mut work = Work::new(&|| true);
        let before = work.room();
        let sources = Sources {
            remote: None,
            allowance: &Allowance::default(),
        };
        let (schema, values) = (schema.to_string(), json!(vec![1; 10_000]));
        let mut warnings = crate::Warnings::default();
        let fit = validate_one(
            schema.as_bytes(),
            &values,
            sources,
            &mut work,
            &mut warnings,
        );
        assert!(fit.is_ok());
        assert_eq!(work.room(), before);
    }

    /// Each schema goes through all of the value.
    #[test]
    fn long_values_take_steps() {
        let long = json!("a.".repeat(500_000));
        let list = json!(vec![1.5; 20_000]);
        for (rule, value) in [
            (json!({"format": "hostname"}), &long),
            (json!({"not": {"const": long}}), &long),
            (json!({"const": list}), &list),
            (json!({"enum": [1, list]}), &list),
        ] {
            let schema = json!({
                "$schema": "http://json-schema.org/draft-07/schema#",
                "definitions": {"rule": rule},
                "allOf": vec![json!({"anyOf": [{"$ref": "#/definitions/rule"}, true]}); 2_000],
            });
            let error = checked(&schema.to_string(), value).unwrap_err();
            assert!(error.contains("too complex"), "{error}");
        }
    }

    /// Names of properties are read as texts are.
    #[test]
    fn long_names_take_steps() {
        let name = "n".repeat(1 << 20);
        let named = json!({(name.as_str()): 1});
        for (rule, value) in [
            (json!({"required": [name]}), &json!({})),
            (
                json!({"dependencies": {(name.as_str()): ["a"]}}),
                &json!({}),
            ),
            (json!({"dependencies": {"a": [name]}}), &json!({"a": 1})),
            (json!({"properties": {"m": {}}}), &named),
            (json!({"propertyNames": {"type": "string"}}), &named),
            (json!({"const": named}), &named),
            (json!({"enum": [named]}), &named),
            (json!({"uniqueItems": true}), &json!([named])),
        ] {
            let schema = json!({
                "$schema": "http://json-schema.org/draft-07/schema#",
                "definitions": {"rule": rule},
                "allOf": vec![json!({"anyOf": [{"$ref": "#/definitions/rule"}, true]}); 200],
            });
            let mut work = Work::new(&|| true);
            assert!(work.step(4_500_000));
            let sources = Sources {
                remote: None,
                allowance: &Allowance::default(),
            };
            let mut warnings = crate::Warnings::default();
            let schema = schema.to_string();
            let fit = validate_one(schema.as_bytes(), value, sources, &mut work, &mut warnings);
            let is_given_up = fit.is_err_and(|misfit| misfit.text.contains("too complex"));
            assert!(is_given_up, "{:.40}", rule.to_string());
        }
    }

    /// Constants inside constants that are schemas by reference.
    #[test]
    fn constants_that_are_kept_are_bounded_together() {
        for keyword in ["const", "enum"] {
            let wrapped = |inner| match keyword {
                "const" => json!({"const": inner}),
                _ => json!({"enum": [inner]}),
            };
            let inner = (0..100).fold(json!("x".repeat(1 << 20)), |inner, _| wrapped(inner));
            let step = if keyword == "const" {
                "/const"
            } else {
                "/enum/0"
            };
            let references =
                (1..100).map(|level| json!({"$ref": format!("#{}", step.repeat(level))}));
            let mut schema = inner;
            schema["allOf"] = references.collect();
            let error = refusal(&schema.to_string());
            assert!(error.contains("document is too large"), "{error}");
        }
    }

    /// Each schema of a chain keeps what it has not looked at until those below it are done.
    #[test]
    fn what_is_not_evaluated_yet_takes_room_while_it_is_kept() {
        let object = |keys: usize, length: usize| {
            let keys = (0..keys).map(|at| (format!("{at:0length$}"), json!(1)));
            serde_json::Value::Object(keys.collect())
        };
        let mut definitions = serde_json::Map::new();
        for level in 0..390 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            definitions.insert(format!("d{level}"), next);
        }
        definitions.insert("d390".to_owned(), json!({"type": "object"}));
        let chain = json!({
            "unevaluatedProperties": true,
            "$ref": "#/$defs/d0",
            "$defs": definitions,
        });
        let error = checked(&chain.to_string(), &object(2_000, 8)).unwrap_err();
        assert!(error.contains("too complex"), "{error}");
        // Long names are compared with each other.
        let error = checked(&chain.to_string(), &object(200, 30_000)).unwrap_err();
        assert!(error.contains("too complex"), "{error}");
        checked(&chain.to_string(), &object(500, 8)).unwrap();

        // One after the other they take it again, whether they fit or not.
        let either = json!({"anyOf": [{"minProperties": 9_000}, {"type": "object"}]});
        let row = json!({"unevaluatedProperties": true, "allOf": vec![either; 100]});
        checked(&row.to_string(), &object(2_000, 8)).unwrap();
    }

    /// How deep a schema goes is a limit of its own; the charts before it and after it are checked.
    #[test]
    fn a_schema_that_goes_too_deep_silences_no_other_chart() {
        let chain = |levels: usize| {
            let next = |at: usize| json!({"$ref": format!("#/definitions/d{}", at + 1)});
            let mut definitions: serde_json::Map<_, _> =
                (0..levels).map(|at| (format!("d{at}"), next(at))).collect();
            definitions.insert(format!("d{levels}"), json!({"minProperties": 1}));
            json!({"$ref": "#/definitions/d0", "definitions": definitions})
        };
        let chart = |name: &str, schema: &serde_json::Value| {
            let mut chart = crate::Chart::default();
            chart.metadata.name = name.to_owned();
            chart.schema = Some(schema.to_string().into());
            chart
        };
        let misfit = json!({"required": ["x"]});
        let mut deeper = chain(401);
        deeper["allOf"] = json!([{"not": {"$ref": "#/definitions/d0"}}, misfit]);
        let umbrella = crate::Chart {
            dependencies: vec![
                chart("deep", &chain(401)),
                chart("deeper", &deeper),
                chart("other", &misfit),
            ],
            ..chart("web", &misfit)
        };
        let values = json!({"deep": {}, "deeper": {}, "other": {}});
        let mut warnings = crate::Warnings::default();
        let misfits = super::validate(&umbrella, &values, None, &mut warnings).unwrap_err();
        let too_complex = "at '': values and schema are too complex to check";
        let missing = "- at '': missing property 'x'";
        assert_eq!(
            misfits.to_string(),
            format!(
                "web:\n{missing}\ndeep:\n{too_complex}\ndeeper:\n{too_complex}\nother:\n{missing}\n"
            )
        );
    }

    #[test]
    fn a_check_ends_once_nobody_wants_its_result() {
        let asked = std::cell::Cell::new(0);
        let is_wanted = || {
            asked.set(asked.get() + 1);
            asked.get() < 3
        };
        let mut work = Work::new(&is_wanted);
        let sources = Sources {
            remote: None,
            allowance: &Allowance::default(),
        };
        let values = json!(vec![1; 100_000]);
        let mut warnings = crate::Warnings::default();
        let schema = br#"{"items": {"type": "integer"}}"#;
        let fit = validate_one(schema, &values, sources, &mut work, &mut warnings);
        assert!(fit.err().unwrap().text.contains("too complex"));
        assert_eq!(asked.get(), 3);
    }

    #[test]
    fn charts_that_do_not_fit_come_in_the_order_of_their_names() {
        let mut files = vec![crate::File::new(
            "Chart.yaml",
            "apiVersion: v2\nname: web\nversion: 1.0.0\n",
        )];
        let mut values = serde_json::Map::new();
        for name in ["zoo", "api", "cache", "mail"] {
            let file =
                |file: &str, text: String| crate::File::new(format!("charts/{name}/{file}"), text);
            files.push(file(
                "Chart.yaml",
                format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n"),
            ));
            files.push(file(
                "values.schema.json",
                r#"{"required": ["x"]}"#.to_owned(),
            ));
            values.insert(name.to_owned(), json!({}));
        }
        let mut warnings = crate::Warnings::default();
        let chart = crate::loader::load_files(files, &mut warnings).unwrap();
        let errors = super::validate(&chart, &values.into(), None, &mut warnings).unwrap_err();
        let charts: Vec<_> = errors.charts().collect();
        assert_eq!(charts, ["api", "cache", "mail", "zoo"]);
    }

    #[test]
    fn schemas_read_no_files_and_fetch_nothing() {
        for reference in ["file:///etc/passwd", "http://localhost/x", "other.json"] {
            let schema = json!({"$ref": reference}).to_string();
            assert!(refusal(&schema).contains("failing loading"), "{reference}");
        }
    }
}
