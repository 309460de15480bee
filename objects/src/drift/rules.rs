//! Rules of a release that take differences out of the comparison.
//!
//! Mirrors Fleet's normalisers: `jsonPointers`, `operations` and `ignore` of
//! `spec.options.diff.comparePatches`, and the ones that always apply (aggregated roles).

use golib::regexp::Regexp;
use serde_json::{Value, json};

use crate::fields::text;
use crate::merge::operations;
use crate::object::ObjectKey;

/// One step of an RFC 6902 patch, or Fleet's `ignore`. Values are texts, as in Fleet's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// `add`, `remove`, `replace`, `move`, `copy`, `test` or `ignore`.
    pub op: String,
    /// JSON pointer; unused by `ignore`.
    pub path: String,
    /// Text to write; unused by some operations.
    pub value: String,
}

/// What to leave out when comparing some objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// `group/version` of the objects.
    pub api_version: String,
    /// Their kind.
    pub kind: String,
    /// Their namespace; see the fields for what empty means.
    pub namespace: String,
    /// Their name; see the fields for what empty means.
    pub name: String,
    /// Paths to leave out. Here group and kind are glob patterns and an empty name or namespace
    /// means any.
    pub json_pointers: Vec<String>,
    /// A chain of edits made to both sides; all or nothing. Here everything must match exactly.
    /// `ignore` takes an object that is missing out of the report: its namespace must be equal, an
    /// empty name means any, and a name is an exact name or an unanchored regular expression.
    pub operations: Vec<Operation>,
}

/// A rule that cannot be used; the others still are.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// A name pattern that does not compile.
    #[error("cannot compile bundle diff ignore pattern {pattern:?}")]
    Pattern {
        /// The pattern as written.
        pattern: String,
        /// Why.
        #[source]
        source: golib::regexp::Error,
    },
}

/// The rules of one release, compiled.
#[derive(Debug, Default)]
pub struct Rules {
    pointers: Vec<PointerRule>,
    edits: Vec<EditRule>,
    ignored: Vec<IgnoreRule>,
}

#[derive(Debug)]
struct PointerRule {
    /// Group and kind are patterns; an empty namespace or name is any.
    key: ObjectKey,
    path: String,
}

#[derive(Debug)]
struct EditRule {
    api_version: String,
    key: ObjectKey,
    edits: Vec<Value>,
}

#[derive(Debug)]
struct IgnoreRule {
    api_version: String,
    key: ObjectKey,
    pattern: Option<Regexp>,
}

impl Rule {
    fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.api_version, &self.kind, &self.namespace, &self.name)
    }
}

impl PointerRule {
    fn fits(&self, object: &ObjectKey) -> bool {
        let Self { key, .. } = self;
        matches(&key.group, &object.group)
            && matches(&key.kind, &object.kind)
            && (key.namespace.is_empty() || key.namespace == object.namespace)
            && (key.name.is_empty() || key.name == object.name)
    }
}

impl EditRule {
    fn fits(&self, api_version: &str, object: &ObjectKey) -> bool {
        self.api_version == api_version && self.key == *object
    }
}

impl Rules {
    /// Compiles rules; what cannot be used is left out and returned beside them.
    pub fn compile(rules: &[Rule]) -> (Self, Vec<RulesError>) {
        let mut compiled = Self::default();
        let mut errors = Vec::new();
        for rule in rules {
            compiled.add_pointers(rule);
            if let Err(error) = compiled.add_operations(rule) {
                errors.push(error);
            }
        }
        (compiled, errors)
    }

    fn add_pointers(&mut self, rule: &Rule) {
        for pointer in &rule.json_pointers {
            self.pointers.push(PointerRule {
                key: rule.key(),
                path: pointer.clone(),
            });
        }
    }

    fn add_operations(&mut self, rule: &Rule) -> Result<(), RulesError> {
        let key = rule.key();
        let mut edits = Vec::new();
        for operation in &rule.operations {
            if operation.op == "ignore" {
                let pattern =
                    Regexp::compile(&rule.name).map_err(|source| RulesError::Pattern {
                        pattern: rule.name.clone(),
                        source,
                    })?;
                let pattern = (!rule.name.is_empty()).then_some(pattern);
                self.ignored.push(IgnoreRule {
                    api_version: rule.api_version.clone(),
                    key: key.clone(),
                    pattern,
                });
                continue;
            }
            edits.push(json!({
                "op": operation.op, "path": operation.path, "value": operation.value,
            }));
        }
        if !edits.is_empty() {
            let api_version = rule.api_version.clone();
            let is_same = |known: &&mut EditRule| known.fits(&api_version, &key);
            match self.edits.iter_mut().find(is_same) {
                Some(known) => known.edits.extend(edits),
                None => self.edits.push(EditRule {
                    api_version,
                    key,
                    edits,
                }),
            }
        }
        Ok(())
    }

    /// Whether a missing object, desired in this `apiVersion`, is left out of the report.
    pub fn ignores_missing(&self, api_version: &str, key: &ObjectKey) -> bool {
        self.ignored.iter().any(|rule| {
            (
                rule.api_version.as_str(),
                &rule.key.kind,
                &rule.key.namespace,
            ) == (api_version, &key.kind, &key.namespace)
                && (rule.key.name == key.name
                    || rule
                        .pattern
                        .as_ref()
                        .is_none_or(|p| p.is_match(key.name.as_bytes())))
        })
    }

    /// Brings one side of a comparison into the form that counts.
    pub(super) fn normalise(&self, object: &mut Value) {
        ignore_aggregated_rules(object);
        let api_version = text(object, "/apiVersion").to_owned();
        let key = ObjectKey::of(object);
        for rule in &self.pointers {
            if rule.fits(&key) {
                let remove = json!({"op": "remove", "path": rule.path});
                // A pointer to nothing is skipped on its own.
                if let Ok(rest) = operations::patch(object, &[remove]) {
                    *object = rest;
                }
            }
        }
        for rule in self
            .edits
            .iter()
            .filter(|rule| rule.fits(&api_version, &key))
        {
            if let Ok(edited) = operations::patch(object, &rule.edits) {
                *object = edited;
            }
        }
    }
}

/// Fleet's patterns have no separator; no group or kind holds this one.
const GLOB_SEPARATOR: char = '\0';

fn matches(pattern: &str, text: &str) -> bool {
    pattern == text
        || golib::glob::Glob::compile(pattern, GLOB_SEPARATOR).is_ok_and(|glob| glob.matches(text))
}

/// Rules of an aggregated role belong to the controller that aggregates them.
fn ignore_aggregated_rules(object: &mut Value) {
    let is_role = matches!(object["kind"].as_str(), Some("ClusterRole" | "Role"))
        && object["apiVersion"]
            .as_str()
            .is_some_and(|v| v.starts_with("rbac.authorization.k8s.io/"));
    let Some(object) = object.as_object_mut().filter(|_| is_role) else {
        return;
    };
    let is_empty = object
        .get("rules")
        .and_then(Value::as_array)
        .is_some_and(Vec::is_empty);
    if is_empty
        || object
            .get("aggregationRule")
            .is_some_and(|rule| !rule.is_null())
    {
        object.remove("rules");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(name: &str) -> Rule {
        Rule {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            ..Rule::default()
        }
    }

    fn operation(op: &str, path: &str) -> Operation {
        Operation {
            op: op.to_owned(),
            path: path.to_owned(),
            value: String::new(),
        }
    }

    fn config_map(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
               "metadata": {"name": name, "namespace": "ns"}, "data": {"x": "1", "y": "2"}})
    }

    #[test]
    fn a_pointer_is_removed_and_an_absent_one_skipped() {
        let pointers = vec!["/data/absent".to_owned(), "/data/x".to_owned()];
        let (rules, errors) = Rules::compile(&[Rule {
            json_pointers: pointers,
            ..rule("")
        }]);
        assert!(errors.is_empty());
        let mut object = config_map("a");
        rules.normalise(&mut object);
        assert_eq!(object["data"], json!({"y": "2"}));
    }

    #[test]
    fn a_chain_of_operations_is_all_or_nothing() {
        let chain = |second: &str| Rule {
            operations: vec![operation("remove", "/data/x"), operation("remove", second)],
            ..rule("a")
        };
        let normalised = |rule| {
            let mut object = config_map("a");
            Rules::compile(&[rule]).0.normalise(&mut object);
            object["data"].clone()
        };
        assert_eq!(normalised(chain("/data/y")), json!({}));
        assert_eq!(
            normalised(chain("/data/absent")),
            json!({"x": "1", "y": "2"})
        );
    }

    #[test]
    fn ignore_takes_a_name_a_pattern_or_a_whole_namespace() {
        let ignores = |pattern: &str, name: &str| {
            let rule = Rule {
                operations: vec![operation("ignore", "")],
                ..rule(pattern)
            };
            let (rules, _) = Rules::compile(&[rule]);
            rules.ignores_missing("v1", &ObjectKey::of(&config_map(name)))
        };
        assert!(ignores("suse-observability", "suse-observability"));
        assert!(ignores(".*serv.*", "suse-observability"));
        assert!(ignores("", "anything"));
        assert!(!ignores("other", "suse-observability"));
    }

    #[test]
    fn a_bad_pattern_is_told_and_the_other_rules_still_apply() {
        let bad = Rule {
            operations: vec![operation("ignore", "")],
            ..rule("(")
        };
        let good = Rule {
            operations: vec![operation("remove", "/data/x")],
            ..rule("a")
        };
        let (rules, errors) = Rules::compile(&[bad, good]);
        assert!(errors[0].to_string().contains('('));
        let mut object = config_map("a");
        rules.normalise(&mut object);
        assert_eq!(object["data"], json!({"y": "2"}));
    }

    #[test]
    fn aggregated_rules_are_the_controllers() {
        let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "aggregationRule": {"clusterRoleSelectors": []}, "rules": [{"verbs": ["get"]}]});
        Rules::default().normalise(&mut role);
        assert_eq!(role.get("rules"), None);
    }
}
