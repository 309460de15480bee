//! Rules of a release that take differences out of the comparison.
//!
//! Mirrors Fleet's normalisers: `jsonPointers`, `operations` and `ignore` of
//! `spec.options.diff.comparePatches`, and the ones that always apply (aggregated roles).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use golib::glob::Glob;
use golib::regexp::{Budget, Meter, Regexp, TooSlow};
use serde_json::{Value, json};

use crate::fields::text;
use crate::merge::operations;
use crate::object::ObjectKey;

/// Elements of lists that may close up behind what the pointers of all rules take out of all objects; beyond it no more is taken out of lists.
const MAX_MOVES: usize = 16 << 20;

/// Bytes that the name patterns of all rules may take, about; rules that do not fit are left out and reported.
const MAX_PATTERNS: usize = 16 << 20;
/// Steps that compiling the globs of all rules may take, and that asking them may take: many a glob is slow.
const MAX_GLOB_WORK: usize = 16 << 20;
/// Steps that holding one expression against one name may take; beyond them it does not fit.
const MAX_NAME_STEPS: u64 = 1 << 20;
/// Steps that holding all names of `ignore` against all objects may take, some fifty nanoseconds each: a thousand patterns and ten thousand objects are ten
/// million pairs. Beyond them no pattern fits any more.
const MAX_NAME_WORK: u64 = 16 << 20;
/// Bytes of a name that are searched for a part of it in a step.
const BYTES_A_STEP: u64 = 16;

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

/// A rule about the parts of some objects to leave out when comparing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// `group/version` of the objects.
    pub api_version: String,
    pub kind: String,
    /// Namespace of the objects; see the fields for what empty means.
    pub namespace: String,
    /// Name of the objects; see the fields for what empty means.
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
    /// A glob that stands for itself alone, as all of them together take too long.
    #[error(
        "the patterns of bundle diff jsonPointers take too long: {pattern:?} is taken as it is written"
    )]
    Glob {
        /// The pattern as written.
        pattern: String,
    },
    /// Names of `ignore` that fit nothing any more, as all of them together take too long.
    #[error(
        "the patterns of bundle diff ignore take too long for so many missing objects: of some only the name itself counts"
    )]
    Names,
    /// Pointers into lists that take nothing out any more, as all of them together take too long.
    #[error(
        "bundle diff jsonPointers take too much out of lists: of some objects nothing is taken"
    )]
    Lists,
}

/// The rules of one release, compiled: each pattern once, and nothing that is searched for one by one but patterns. They are asked about the objects of one
/// look, all of which they have one budget for.
#[derive(Debug, Default)]
pub struct Rules {
    pointers: Vec<PointerRule>,
    by_kind: Mutex<PointersByKind>,
    work: Mutex<Work>,
    /// By `apiVersion` and object.
    edits: BTreeMap<(String, ObjectKey), Vec<Value>>,
    /// By `apiVersion`, kind and namespace: names, and what each stands for.
    ignored: BTreeMap<(String, String, String), BTreeMap<String, Name>>,
}

/// The pointer rules for each group and kind, matched once.
#[derive(Debug)]
struct PointersByKind {
    known: HashMap<(String, String), Arc<[usize]>>,
    /// Steps that globs may still take.
    left: usize,
}

impl Default for PointersByKind {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            left: MAX_GLOB_WORK,
        }
    }
}

/// What asking may still take, for all objects together: who deploys many objects with many rules multiplies the two.
#[derive(Debug)]
struct Work {
    /// Steps that names of `ignore` may take.
    name_steps: u64,
    /// They were not enough.
    lacks_name_steps: bool,
    /// Elements of lists that may close up.
    moves: usize,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            name_steps: MAX_NAME_WORK,
            lacks_name_steps: false,
            moves: MAX_MOVES,
        }
    }
}

impl Work {
    /// For one pattern and one name.
    fn pair(&mut self) -> PairSteps<'_> {
        PairSteps {
            left: MAX_NAME_STEPS,
            all: self,
        }
    }
}

/// Steps for one pattern and one name, which count for all pairs as well.
struct PairSteps<'w> {
    left: u64,
    all: &'w mut Work,
}

impl Meter for PairSteps<'_> {
    type Error = TooSlow;

    fn spend(&mut self, steps: u64) -> Result<(), TooSlow> {
        self.left = self.left.checked_sub(steps).ok_or(TooSlow)?;
        let left = self.all.name_steps.checked_sub(steps);
        self.all.lacks_name_steps |= left.is_none();
        self.all.name_steps = left.unwrap_or_default();
        left.map(drop).ok_or(TooSlow)
    }
}

#[derive(Debug)]
struct PointerRule {
    /// An empty namespace or name is any.
    key: ObjectKey,
    group: Option<Glob>,
    kind: Option<Glob>,
    paths: Vec<String>,
}

/// What a name of `ignore` stands for besides itself.
#[derive(Debug)]
enum Name {
    Any,
    /// A pattern without signs: what contains it.
    Part,
    Pattern(Regexp),
}

impl Name {
    fn compile(name: &str, budget: &mut Budget) -> Result<Self, golib::regexp::Error> {
        if name.is_empty() {
            return Ok(Self::Any);
        }
        match name.bytes().all(is_plain) {
            true => Ok(Self::Part),
            false => Regexp::compile_within(name, budget).map(Self::Pattern),
        }
    }

    /// Whether it fits another name than itself; what it takes comes off what all may take.
    fn fits(&self, name: &str, found: &str, work: &mut Work) -> bool {
        let mut steps = work.pair();
        match self {
            Self::Any => true,
            Self::Part => {
                let cost = 1 + found.len() as u64 / BYTES_A_STEP;
                steps.spend(cost).is_ok() && found.contains(name)
            }
            Self::Pattern(pattern) => pattern.is_match(found.as_bytes(), &mut steps) == Ok(true),
        }
    }
}

/// Whether a byte is only itself in every kind of pattern.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

impl Rule {
    fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.api_version, &self.kind, &self.namespace, &self.name)
    }
}

impl PointerRule {
    fn fits_kind(&self, group: &str, kind: &str, steps: &mut usize) -> bool {
        let mut fits = |pattern: &str, glob: Option<&Glob>, text: &str| {
            pattern == text
                || glob.is_some_and(|glob| glob.matches_within(text, steps) == Some(true))
        };
        fits(&self.key.group, self.group.as_ref(), group)
            && fits(&self.key.kind, self.kind.as_ref(), kind)
    }

    fn fits_name(&self, object: &ObjectKey) -> bool {
        let Self { key, .. } = self;
        (key.namespace.is_empty() || key.namespace == object.namespace)
            && (key.name.is_empty() || key.name == object.name)
    }
}

/// Fleet's patterns have no separator; no group or kind holds this one.
const GLOB_SEPARATOR: char = '\0';

/// A pattern that says more than itself; one that does not compile is only itself.
fn glob(pattern: &str, work: &mut usize) -> Result<Option<Glob>, RulesError> {
    /// Limit on compiling a pattern, in steps; beyond it a pattern is matched in another way.
    const MOST: usize = 1 << 20;
    let signs = pattern
        .bytes()
        .filter(|&byte| !is_plain(byte) && byte != b'.');
    let pieces = 2 * signs.count() + 1;
    if pieces == 1 {
        return Ok(None);
    }
    let cost = pieces
        .saturating_pow(4)
        .clamp(pattern.len(), MOST.max(pattern.len()));
    let Some(left) = work.checked_sub(cost) else {
        let pattern = pattern.to_owned();
        return Err(RulesError::Glob { pattern });
    };
    *work = left;
    Ok(Glob::compile(pattern, GLOB_SEPARATOR).ok())
}

impl Rules {
    /// Compiles rules; what cannot be used is left out and returned beside them.
    pub fn compile(rules: &[Rule]) -> (Self, Vec<RulesError>) {
        let mut compiled = Self::default();
        let mut errors = Vec::new();
        let (mut budget, mut glob_work) = (Budget::new(MAX_PATTERNS), MAX_GLOB_WORK);
        for rule in rules {
            errors.extend(compiled.add_pointers(rule, &mut glob_work));
            errors.extend(compiled.add_operations(rule, &mut budget).err());
        }
        (compiled, errors)
    }

    fn add_pointers(&mut self, rule: &Rule, work: &mut usize) -> Vec<RulesError> {
        let mut errors = Vec::new();
        if rule.json_pointers.is_empty() {
            return errors;
        }
        let key = rule.key();
        let mut glob = |pattern: &str| {
            let compiled = self::glob(pattern, work);
            compiled.unwrap_or_else(|error| {
                errors.push(error);
                None
            })
        };
        self.pointers.push(PointerRule {
            group: glob(&key.group),
            kind: glob(&key.kind),
            key,
            paths: rule.json_pointers.clone(),
        });
        errors
    }

    fn add_operations(&mut self, rule: &Rule, budget: &mut Budget) -> Result<(), RulesError> {
        let (ignores, edits): (Vec<_>, Vec<_>) =
            rule.operations.iter().partition(|one| one.op == "ignore");
        if !ignores.is_empty() {
            let place = (
                rule.api_version.clone(),
                rule.kind.clone(),
                rule.namespace.clone(),
            );
            let names = self.ignored.entry(place).or_default();
            if !names.contains_key(&rule.name) {
                let name = Name::compile(&rule.name, budget);
                let name = name.map_err(|source| RulesError::Pattern {
                    pattern: rule.name.clone(),
                    source,
                })?;
                names.insert(rule.name.clone(), name);
            }
        }
        if !edits.is_empty() {
            let edit = |one: &Operation| match one.value.as_str() {
                // Fleet leaves it out: then it is null, and `test` finds nothing there.
                "" => json!({"op": one.op, "path": one.path}),
                value => json!({"op": one.op, "path": one.path, "value": value}),
            };
            let known = self.edits.entry((rule.api_version.clone(), rule.key()));
            known.or_default().extend(edits.into_iter().map(edit));
        }
        Ok(())
    }

    /// Whether a missing object, desired in this `apiVersion`, is left out of the report. Where all that were asked about took too long, patterns fit no
    /// more, and [`exhausted`](Self::exhausted) says so.
    pub fn ignores_missing(&self, api_version: &str, key: &ObjectKey) -> bool {
        let place = (
            api_version.to_owned(),
            key.kind.clone(),
            key.namespace.clone(),
        );
        let Some(names) = self.ignored.get(&place) else {
            return false;
        };
        // Exact names, and the entry for every name, need no pattern search, so they cost no budget.
        if names.contains_key(&key.name) || names.contains_key("") {
            return true;
        }
        let mut work = self.work();
        for (name, one) in names {
            if work.lacks_name_steps {
                return false;
            }
            if one.fits(name, &key.name, &mut work) {
                return true;
            }
        }
        false
    }

    /// Which rules did not count for all objects that were asked about, as that took too long.
    pub fn exhausted(&self) -> Vec<RulesError> {
        let work = self.work();
        let names = work.lacks_name_steps.then_some(RulesError::Names);
        let lists = (work.moves == 0).then_some(RulesError::Lists);
        names.into_iter().chain(lists).collect()
    }

    /// The pointer rules for the kind of an object, whatever its name.
    fn of_kind(&self, object: &ObjectKey) -> Arc<[usize]> {
        let mut by_kind = self.by_kind();
        let kind = (object.group.clone(), object.kind.clone());
        if let Some(known) = by_kind.known.get(&kind) {
            return Arc::clone(known);
        }
        let left = &mut by_kind.left;
        let rules = self.pointers.iter().enumerate();
        let fits = |(at, rule): (usize, &PointerRule)| {
            let fits = rule.fits_kind(&object.group, &object.kind, left);
            fits.then_some(at)
        };
        let fitting: Arc<[usize]> = rules.filter_map(fits).collect();
        by_kind.known.insert(kind, Arc::clone(&fitting));
        fitting
    }

    fn by_kind(&self) -> MutexGuard<'_, PointersByKind> {
        self.by_kind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings one side of a comparison into the form that counts.
    pub(super) fn normalise(&self, object: &mut Value) {
        ignore_aggregated_rules(object);
        let api_version = text(object, "/apiVersion").to_owned();
        let key = ObjectKey::of(object);
        let mut work = self.work();
        for at in self.of_kind(&key).iter() {
            let rule = &self.pointers[*at];
            for path in rule.paths.iter().filter(|_| rule.fits_name(&key)) {
                // A pointer to nothing is skipped on its own.
                operations::take_out(object, path, &mut work.moves);
            }
        }
        drop(work);
        if let Some(edits) = self.edits.get(&(api_version, key))
            && let Ok(edited) = operations::patch(object, edits)
        {
            *object = edited;
        }
    }
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
    fn pointers_into_a_list_count_from_what_those_before_them_left() {
        let (rules, _) = Rules::compile(&[Rule {
            json_pointers: vec!["/data/list/0".to_owned(); 2],
            ..rule("")
        }]);
        let mut object = config_map("a");
        object["data"]["list"] = json!([1, 2, 3]);
        rules.normalise(&mut object);
        assert_eq!(object["data"]["list"], json!([3]));
    }

    #[test]
    fn pointers_without_end_into_a_long_list_end() {
        const LONG: usize = 10_000;
        let (rules, _) = Rules::compile(&[Rule {
            json_pointers: vec!["/data/list/0".to_owned(); LONG],
            ..rule("")
        }]);
        let mut object = config_map("a");
        object["data"]["list"] = vec![0; LONG].into();
        rules.normalise(&mut object);
        let left = object["data"]["list"].as_array().unwrap().len();
        assert!(left > LONG / 2, "{left}");
    }

    #[test]
    fn a_rule_that_says_ignore_again_and_again_is_compiled_once() {
        let (rules, errors) = Rules::compile(&[Rule {
            operations: vec![operation("ignore", ""); 1000],
            ..rule("[a-c].*")
        }]);
        assert!(errors.is_empty());
        let names: Vec<_> = rules.ignored.values().flatten().collect();
        assert_eq!(names.len(), 1);
    }

    #[test]
    fn names_that_take_much_when_they_are_compiled_are_left_out() {
        let rules: Vec<Rule> = (0..1000)
            .map(|at| Rule {
                operations: vec![operation("ignore", "")],
                ..rule(&format!(r"\pL{{150}}{at}"))
            })
            .collect();
        let (rules, errors) = Rules::compile(&rules);
        let kept = rules.ignored.values().flatten().count();
        assert!((1..5).contains(&kept), "{kept}");
        assert_eq!(errors.len(), 1000 - kept);
    }

    #[test]
    fn globs_that_take_long_end() {
        let rules: Vec<Rule> = (0..1000)
            .map(|at| Rule {
                api_version: "*/v1".to_owned(),
                kind: format!("{}{at}", "*?".repeat(6)),
                json_pointers: vec!["/data/x".to_owned()],
                ..Rule::default()
            })
            .collect();
        let (rules, errors) = Rules::compile(&rules);
        assert!(errors.len() > 900, "{}", errors.len());
        let of_kind = |kind: &str| ObjectKey::new("x/v1", kind, "ns", "a");
        let mut object = config_map("a");
        object["kind"] = "a".repeat(250).into();
        rules.normalise(&mut object);
        let left = rules.by_kind().left;
        rules.normalise(&mut object);
        assert_eq!(rules.by_kind().left, left);
        // However many kinds there are.
        for at in 0..100 {
            rules.of_kind(&of_kind(&format!("{}{at}", "a".repeat(200))));
        }
        assert_eq!(rules.by_kind().known.len(), 101);
    }

    /// Whoever deletes ten thousand objects with a thousand rules for them would have ten million pairs compared, at each look.
    #[rstest::rstest]
    #[case::expressions("xa+")]
    #[case::parts("x-")]
    fn names_of_many_objects_and_many_patterns_end(#[case] pattern: &str) {
        let many: Vec<Rule> = (0..1_000)
            .map(|at| Rule {
                operations: vec![operation("ignore", "")],
                ..rule(&format!("{pattern}{at}"))
            })
            .collect();
        let (rules, errors) = Rules::compile(&many);
        assert!(errors.is_empty());
        let name = |at: usize| ObjectKey::of(&config_map(&format!("{}{at:05}", "a".repeat(248))));
        assert!(!rules.ignores_missing("v1", &name(0)));
        assert!(rules.exhausted().is_empty());
        let of_one = MAX_NAME_WORK - rules.work().name_steps;
        assert!(of_one >= 1_000, "{of_one}");
        let asked = (1..10_000).take_while(|at| {
            assert!(!rules.ignores_missing("v1", &name(*at)));
            !rules.work().lacks_name_steps
        });
        let asked = asked.count() as u64;
        assert!(of_one * asked <= MAX_NAME_WORK, "{asked} names");
        assert!(matches!(rules.exhausted()[..], [RulesError::Names]));
        // From then on nothing is searched, and what needs no search still counts.
        let own = many[500].name.clone();
        assert!(rules.ignores_missing("v1", &ObjectKey::of(&config_map(&own))));
        assert!(!rules.ignores_missing("v1", &ObjectKey::of(&config_map(&format!("{own}0")))));
        assert_eq!(rules.work().name_steps, 0);
    }

    /// An object of its own for each of the pointers is no way to more of them.
    #[test]
    fn pointers_into_the_lists_of_many_objects_end() {
        const LONG: usize = 5_000;
        let (rules, _) = Rules::compile(&[Rule {
            json_pointers: vec!["/data/list/0".to_owned(); 1_000],
            ..rule("")
        }]);
        let taken = |at: usize| {
            let mut object = config_map(&at.to_string());
            object["data"]["list"] = vec![0; LONG].into();
            rules.normalise(&mut object);
            LONG - object["data"]["list"].as_array().unwrap().len()
        };
        let all: Vec<_> = (0..6).map(taken).collect();
        assert_eq!((all[0], all[5]), (1_000, 0), "{all:?}");
        assert!(matches!(rules.exhausted()[..], [RulesError::Lists]));
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
    fn a_test_without_value_holds_where_nothing_is() {
        let normalised = |tested: &str| {
            let mut object = config_map("a");
            let chain = vec![operation("test", tested), operation("remove", "/data/x")];
            let rule = Rule {
                operations: chain,
                ..rule("a")
            };
            Rules::compile(&[rule]).0.normalise(&mut object);
            object["data"].clone()
        };
        assert_eq!(normalised("/data/absent"), json!({"y": "2"}));
        assert_eq!(normalised("/data/y"), json!({"x": "1", "y": "2"}));
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
    fn a_bad_pattern_is_reported_and_the_other_rules_still_apply() {
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
