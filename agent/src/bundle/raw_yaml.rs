//! Plain YAML bundles: which files count, and overlays on top of them.
//!
//! Mirrors `internal/helmdeployer/render` (`helm.go manifests`, `patch/patch.go`). Kept files travel
//! inside a generated chart below `raw-yaml/`, where no template is seen in them.

use std::collections::BTreeMap;

use golib::budget::Budget as Weight;
use golib::json::type_name;
use golib::yaml::node;
use objects::merge::{self, Work, builtin, operations};
use serde_json::{Map, Value};

use super::error::BundleError;
use super::manifest::{Budget, Resource};

/// Directory of the chart whose files are applied as they are.
pub(super) const DIRECTORY: &str = "raw-yaml/";
const OVERLAYS: &str = "overlays/";
/// Limit on the bytes that overlays read and write together: a file may be named any number of times, and each patch reads its base anew.
const MAX_OVERLAY_BYTES: usize = 256 << 20;
/// Limit on the nodes and values that patches and their bases are decoded to, one after the other: few bytes may stand for many of them,
/// and are read as often as an overlay is named.
const MAX_DECODED_BYTES: usize = 1 << 30;
/// Limit on what the patches of overlays do with lists and put into documents, in steps: a second or two.
const MAX_OVERLAY_STEPS: usize = 50_000_000;
/// Marks a file of an overlay as a patch of the file named without it.
const PATCH_MARK: &str = "_patch.";

/// Names what has no name, applies overlays, drops them, sorts the rest.
pub(super) fn process(
    resources: &[Resource],
    overlays: &[String],
    decoded: &Weight,
) -> Result<Vec<Resource>, BundleError> {
    let mut named: Vec<Resource> = resources.to_vec();
    for (index, resource) in named.iter_mut().enumerate() {
        if resource.name.is_empty() {
            resource.name = format!("manifests/file{index:03}.yaml");
        }
    }
    if !overlays.is_empty() {
        named = overlaid(&named, overlays, decoded)?;
    }
    named.retain(|resource| !resource.name.starts_with(OVERLAYS));
    named.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(named)
}

/// The files that make up the chart, as (path in the chart, resource).
pub(super) fn chart_files(resources: Vec<Resource>) -> Vec<(String, Resource)> {
    let is_fleet_yaml = |name: &str| matches!(name, "fleet.yaml" | "fleet.yml");
    let mut skipped: Vec<String> = resources
        .iter()
        .filter_map(|resource| resource.name.rsplit_once('/'))
        .filter(|(_, file)| is_fleet_yaml(file) || *file == "Chart.yaml")
        .map(|(directory, _)| format!("{directory}/"))
        .collect();
    // Keep the outermost directories only: then no more than the last one before a name can hold it.
    skipped.sort_unstable();
    skipped.dedup_by(|next, outer| next.starts_with(outer.as_str()));
    let is_skipped = |name: &str| {
        let after = skipped.partition_point(|directory| directory.as_str() <= name);
        let last = skipped[..after].last();
        last.is_some_and(|directory| name.starts_with(directory.as_str()))
    };
    let is_kept = |name: &str| {
        let wanted = [".yaml", ".yml", ".json"]
            .iter()
            .any(|suffix| name.ends_with(suffix));
        wanted && !is_fleet_yaml(name) && !is_skipped(name)
    };
    resources
        .into_iter()
        .filter(|resource| is_kept(&resource.name))
        .map(|resource| {
            let path = match resource.name.starts_with("templates/") {
                true => resource.name.clone(),
                false => format!("{DIRECTORY}{}", resource.name),
            };
            (path, resource)
        })
        .collect()
}

fn overlaid(
    resources: &[Resource],
    overlays: &[String],
    decoded: &Weight,
) -> Result<Vec<Resource>, BundleError> {
    let mut budget = Budget::default();
    let mut files = BTreeMap::new();
    for resource in resources {
        files.insert(resource.name.clone(), resource.decode(&mut budget)?);
    }
    // Of each patched file, and of all of them.
    let mut patched_bytes: BTreeMap<String, usize> = BTreeMap::new();
    let mut all_patched_bytes = 0;
    let mut list_work = Work::new(MAX_OVERLAY_STEPS);
    let mut left_bytes = MAX_OVERLAY_BYTES;
    let mut work = |bytes: usize| {
        left_bytes = left_bytes.checked_sub(bytes).ok_or_else(|| {
            BundleError::Overlay(format!(
                "overlays have more than {} MiB to read and write",
                MAX_OVERLAY_BYTES >> 20
            ))
        })?;
        Ok::<_, BundleError>(())
    };
    let mut left_decoded = MAX_DECODED_BYTES;
    let mut read = |name: &str, data: &[u8], budget: &mut Weight| {
        let (value, taken) = read(name, data, budget)?;
        left_decoded = left_decoded.checked_sub(taken).ok_or_else(|| {
            BundleError::Overlay(format!(
                "failed to convert {name} to json: files of overlays, read as often as they are named, take more than {} MiB decoded",
                MAX_DECODED_BYTES >> 20
            ))
        })?;
        Ok::<_, BundleError>(value)
    };
    for overlay in overlays {
        let prefix = format!("{OVERLAYS}{overlay}/");
        let own: Vec<(String, Vec<u8>)> = files
            .range(prefix.clone()..)
            .take_while(|(name, _)| name.starts_with(&prefix))
            .map(|(name, data)| {
                work(name.len() + data.len())?;
                Ok((name[prefix.len()..].to_owned(), data.clone()))
            })
            .collect::<Result<_, BundleError>>()?;
        // Replacing before patching; Fleet's order within an overlay is random.
        let (patches, whole): (Vec<_>, Vec<_>) = own
            .into_iter()
            .partition(|(name, _)| patched_file(name).is_some());
        files.extend(whole);
        for (name, patch) in patches {
            let Some(target) = patched_file(&name) else {
                continue;
            };
            let base = files.get(&target).ok_or_else(|| {
                BundleError::Overlay(format!("failed to find base file {target} to patch"))
            })?;
            work(base.len())?;
            // Base and patch are dropped again: each pair may take what is left of the budget.
            let mut budget = decoded.clone();
            let base = read(&target, base, &mut budget)?;
            let patch = read(&name, &patch, &mut budget)?;
            let patched = patch_object(&target, base, patch, &mut list_work)?;
            let patched = golib::json::encode(&patched).into_bytes();
            work(patched.len())?;
            let before = patched_bytes.insert(target.clone(), patched.len());
            all_patched_bytes = all_patched_bytes - before.unwrap_or(0) + patched.len();
            let kept = decoded.clone().text(all_patched_bytes);
            kept.map_err(|error| {
                BundleError::Overlay(format!("failed to patch {target}: {error}"))
            })?;
            files.insert(target, patched);
        }
    }
    Ok(files
        .into_iter()
        .map(|(name, data)| Resource {
            name,
            content: String::from_utf8_lossy(&data).into_owned(),
            encoding: String::new(),
        })
        .collect())
}

/// `a/x_patch.yaml` patches `a/x.yaml`.
fn patched_file(name: &str) -> Option<String> {
    let (directory, base) = name.rsplit_once('/').map_or(("", name), |(d, b)| (d, b));
    if !base.contains(PATCH_MARK) {
        return None;
    }
    let base = base.replacen(PATCH_MARK, ".", 1);
    Some(golib::path::clean_text(&match directory {
        "" => base,
        directory => format!("{directory}/{base}"),
    }))
}

/// What a file holds, and what it took to decode it, in bytes.
fn read(name: &str, data: &[u8], budget: &mut Weight) -> Result<(Value, usize), BundleError> {
    // Read as kyaml's yaml does, unlike all else that is deployed: `on` is a text here.
    let (document, taken) = node::unmarshal_weighed(data, budget).map_err(|error| {
        let problem = match error {
            // Fleet shows the text, which may be a Secret's.
            node::Error::Scalar { found, tag, .. } => {
                format!("yaml: cannot decode {found} as a {tag}")
            }
            error => error.to_string(),
        };
        BundleError::Overlay(format!("failed to convert {name} to json: {problem}"))
    })?;
    Ok((document.unwrap_or_else(|| Value::Object(Map::new())), taken))
}

/// A list is RFC 6902; for kinds the API server has built in a map is a strategic merge patch, for
/// others a JSON merge patch (wrangler's `pkg/patch/style.go`).
fn patch_object(
    target: &str,
    base: Value,
    patch: Value,
    work: &mut Work,
) -> Result<Value, BundleError> {
    let failed =
        |problem: &str| BundleError::Overlay(format!("failed to patch {target}: {problem}"));
    if let Value::Array(operations) = &patch {
        return operations::patch_within(&base, operations, work)
            .map_err(|error| failed(&error.to_string()));
    }
    // Definitions are patched as custom kinds are, though the API server has them built in.
    let is_definition =
        base.get("kind").and_then(Value::as_str) == Some("CustomResourceDefinition");
    match builtin(&base).filter(|_| !is_definition) {
        Some(builtin) => merge::apply_strategic_within(&base, &patch, builtin, work)
            .map_err(|error| failed(&error.to_string())),
        // A patch that is no map would take the place of the whole object, and a null remove it.
        None => match (&base, &patch) {
            (Value::Object(_), Value::Object(_)) => Ok(merge::json::merge(base, &patch)),
            (Value::Object(_), _) => Err(failed("Invalid JSON Patch")),
            (Value::Null, _) => Err(failed("Invalid JSON Document")),
            _ => Err(failed(&format!(
                "json: cannot unmarshal {} into Go value of type v1.PartialObjectMetadata",
                type_name(&base)
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str, content: &str) -> Resource {
        Resource {
            name: name.into(),
            content: content.into(),
            encoding: String::new(),
        }
    }

    fn names(resources: &[Resource]) -> Vec<&str> {
        resources
            .iter()
            .map(|resource| resource.name.as_str())
            .collect()
    }

    #[test]
    fn files_are_named_and_sorted() {
        let files = [
            resource("", "a: 1"),
            resource("b.yaml", ""),
            resource("overlays/x/b.yaml", ""),
        ];
        let processed = process(&files, &[], &Weight::default()).unwrap();
        assert_eq!(names(&processed), ["b.yaml", "manifests/file000.yaml"]);
    }

    #[test]
    fn only_manifests_of_this_bundle_are_kept() {
        let files = [
            "README.md",
            "a.yaml",
            "b.json",
            "chart/Chart.yaml",
            "chart/values.yaml",
            "deep/fleet.yaml",
            "deep/x.yaml",
            "fleet.yaml",
            "fleet.yml",
            "templates/t.yaml",
            "z.yml",
        ]
        .map(|name| resource(name, ""));
        let kept: Vec<_> = chart_files(files.to_vec())
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        assert_eq!(
            kept,
            [
                "raw-yaml/a.yaml",
                "raw-yaml/b.json",
                "templates/t.yaml",
                "raw-yaml/z.yml"
            ]
        );
    }

    #[test]
    fn overlays_replace_add_and_patch() {
        let files = [
            resource(
                "cr.yaml",
                "apiVersion: example.com/v1\nkind: X\nspec: {a: 1, b: 2, l: [1, 2]}",
            ),
            resource("other.yaml", "old"),
            resource("overlays/one/cr_patch.yaml", "spec: {b: null, l: [3]}"),
            resource("overlays/one/other.yaml", "new"),
            resource("overlays/one/sub/added.yaml", "added"),
            resource(
                "overlays/two/cr_patch.yaml",
                "[{op: replace, path: /spec/a, value: 5}]",
            ),
        ];
        let overlays = ["one".to_owned(), "two".to_owned()];
        let processed = process(&files, &overlays, &Weight::default()).unwrap();
        assert_eq!(
            names(&processed),
            ["cr.yaml", "other.yaml", "sub/added.yaml"]
        );
        assert_eq!(
            processed[0].content,
            r#"{"apiVersion":"example.com/v1","kind":"X","spec":{"a":5,"l":[3]}}"#
        );
        assert_eq!(processed[1].content, "new");
    }

    /// wrangler 3.7.0, `pkg/patch/style.go:59`, leaves the kind out by its name. A strategic patch would merge the versions by their names.
    #[test]
    fn lists_of_definitions_are_replaced() {
        let base = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec:\n  names: {shortNames: [a]}\n  versions: [{name: v1}]\nmetadata: {finalizers: [a]}\n";
        let files = [
            resource("a.yaml", base),
            resource(
                "overlays/one/a_patch.yaml",
                "metadata: {finalizers: [b]}\nspec: {versions: [{name: v2}]}",
            ),
        ];
        let processed = process(&files, &["one".to_owned()], &Weight::default()).unwrap();
        assert_eq!(
            processed[0].content,
            r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"finalizers":["b"]},"spec":{"names":{"shortNames":["a"]},"versions":[{"name":"v2"}]}}"#
        );
    }

    /// What is no document leaves the release, and its object goes with it: for a definition with all objects of its kind.
    #[test]
    fn a_patch_without_content_removes_no_object() {
        let patched = |base: &str, patch: &str| {
            let files = [
                resource("a.yaml", base),
                resource("overlays/one/a_patch.yaml", patch),
            ];
            process(&files, &["one".to_owned()], &Weight::default())
                .map(|files| files[0].content.clone())
                .map_err(|error| error.to_string())
        };
        let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: xs.example.com}\n";
        let custom = "apiVersion: example.com/v1\nkind: X\nmetadata: {name: a}\n";
        for base in [definition, custom] {
            for patch in ["---\n", "---\n# nothing yet\n", "~", "foo", "3"] {
                let error = patched(base, patch).unwrap_err();
                assert_eq!(
                    error, "failed to patch a.yaml: Invalid JSON Patch",
                    "{patch}"
                );
            }
            assert!(patched(base, "# nothing yet\n").unwrap().contains("kind"));
        }
        // Go reads null into an empty map where it merges strategically.
        let built_in = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        for patch in ["---\n", "---\n# nothing yet\n", "~"] {
            assert_eq!(
                patched(built_in, patch).unwrap(),
                r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#
            );
        }
        assert!(patched(built_in, "foo").is_err());
        assert_eq!(
            patched("---\n# nothing yet\n", "a: 1").unwrap_err(),
            "failed to patch a.yaml: Invalid JSON Document"
        );
        for (base, found) in [("[{a: 1}]", "array"), ("foo", "string")] {
            assert_eq!(
                patched(base, "a: 1").unwrap_err(),
                format!(
                    "failed to patch a.yaml: json: cannot unmarshal {found} into Go value of type v1.PartialObjectMetadata"
                )
            );
        }
    }

    #[test]
    fn nested_directories_of_other_bundles_are_skipped() {
        let files = [
            "a-b/x.yaml",
            "a/Chart.yaml",
            "a/b/Chart.yaml",
            "a/b/x.yaml",
            "a/c/x.yaml",
            "a/x.yaml",
            "ab/x.yaml",
            "b/x.yaml",
        ]
        .map(|name| resource(name, ""));
        let kept: Vec<_> = chart_files(files.to_vec())
            .into_iter()
            .map(|(_, resource)| resource.name)
            .collect();
        assert_eq!(kept, ["a-b/x.yaml", "ab/x.yaml", "b/x.yaml"]);
    }

    #[test]
    fn the_work_of_overlays_is_bounded() {
        let large = "x".repeat(1 << 20);
        let files = [
            resource("a.yaml", ""),
            resource("overlays/one/a.yaml", &large),
        ];
        let times =
            |count: usize| process(&files, &vec!["one".to_owned(); count], &Weight::default());
        assert!(times(200).is_ok());
        assert_eq!(
            times(300_000).unwrap_err().to_string(),
            "overlays have more than 256 MiB to read and write"
        );
        // Each of many elements moves each time.
        let removals = "- {op: remove, path: /l/0}\n".repeat(20_000);
        let files = [
            resource("a.yaml", &format!("l: [{}]", vec!["0"; 50_000].join(","))),
            resource("overlays/one/a_patch.yaml", &removals),
        ];
        let error = process(&files, &["one".to_owned()], &Weight::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed to patch a.yaml: lists are too long for all that is changed in them"
        );
        // A patch may double its object as often as it is long.
        let double = "- {op: copy, from: /a, path: /a/-}\n".repeat(40);
        let files = [
            resource("a.yaml", "a: [x]"),
            resource("overlays/one/a_patch.yaml", &double),
        ];
        let error = process(&files, &["one".to_owned()], &Weight::default()).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("failed to patch a.yaml: document is too large"),
            "{error}"
        );
    }

    /// A few bytes may stand for as many nodes and values as a file may have, and an overlay be named any number of times.
    #[test]
    fn what_aliases_make_of_overlays_is_counted_in_all_of_them() {
        let lists: String = (1..=3)
            .map(|level| {
                let below = vec![format!("*l{}", level - 1); 10].join(", ");
                format!(", l{level}: &l{level} [{below}]")
            })
            .collect();
        let text = "x".repeat(4_000);
        let patch = format!("- {{op: test, path: /kind, value: X, l0: &l0 {text}{lists}}}");
        let files = [
            resource("a.yaml", "kind: X"),
            resource("overlays/one/a_patch.yaml", &patch),
        ];
        let times =
            |count: usize| process(&files, &vec!["one".to_owned(); count], &Weight::default());
        assert!(times(10).is_ok());
        assert_eq!(
            times(300).unwrap_err().to_string(),
            "failed to convert a_patch.yaml to json: files of overlays, read as often as they are named, take more than 1024 MiB decoded"
        );
    }

    /// Memory that the process had at most, in KiB; none where the system does not tell.
    fn peak_kib() -> Option<usize> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    }

    /// Of what deletions leave over at the end of a list Go has a reference for each of them; a copy for each would take two gigabytes.
    #[test]
    fn elements_are_deleted_before_a_large_one() {
        let names: Vec<String> = (0..2_000).map(|at| format!("a{at}")).collect();
        let of_names = |each: fn(&String) -> String| names.iter().map(each).collect::<String>();
        let large = format!("- {{name: z, args: [{}]}}", "x".repeat(1 << 20));
        let containers = of_names(|name| format!("  - {{name: {name}}}\n"));
        let deletions = of_names(|name| format!("  - {{name: {name}, $patch: delete}}\n"));
        let files = [
            resource(
                "a.yaml",
                &format!(
                    "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n{containers}  {large}\n"
                ),
            ),
            resource(
                "overlays/one/a_patch.yaml",
                &format!("spec:\n  $setElementOrder/containers: []\n  containers:\n{deletions}"),
            ),
        ];
        let before = peak_kib();
        let processed = process(&files, &["one".to_owned()], &Weight::default()).unwrap();
        let grown = peak_kib().zip(before).map(|(after, before)| after - before);
        assert!(grown.is_none_or(|kib| kib < 1 << 20), "{grown:?} KiB");
        let start = r#"{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"args":["xxx"#;
        assert!(processed[0].content.starts_with(start));
        assert!(processed[0].content.ends_with(r#"x"],"name":"z"}]}}"#));
    }

    #[test]
    fn errors_of_overlays_quote_nothing_that_a_secret_may_hold() {
        let patched = |base: &str, patch: &str| {
            let files = [
                resource("a.yaml", base),
                resource("overlays/one/a_patch.yaml", patch),
            ];
            let error = process(&files, &["one".to_owned()], &Weight::default()).unwrap_err();
            error.to_string()
        };
        let secret = "apiVersion: v1\nkind: Secret\nstringData: {password: hunter2}\nmetadata: {finalizers: [hunter2]}\n";
        let pod = "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: a, env: [{name: b, value: hunter2}]}]}\n";
        for (base, patch, error) in [
            (
                secret,
                "{$patch: Replace, stringData: {password: hunter2}}",
                "failed to patch a.yaml: unknown patch type",
            ),
            (
                pod,
                "spec: {containers: [{name: a, env: [{value: hunter2}]}]}",
                "failed to patch a.yaml: map does not contain declared merge key: name",
            ),
            (
                pod,
                "spec: {$setElementOrder/containers: [{name: b}], containers: [{name: a, image: hunter2}]}",
                "failed to patch a.yaml: The order in patch list doesn't match $setElementOrder list",
            ),
            (
                secret,
                "metadata: {finalizers: [3]}",
                "failed to patch a.yaml: list element types are not identical",
            ),
            (
                secret,
                "stringData: {password: !!int hunter2}",
                "failed to convert a_patch.yaml to json: yaml: cannot decode !!str as a !!int",
            ),
        ] {
            assert_eq!(patched(base, patch), error);
        }
    }

    /// Fleet reads the base as `v1.PartialObjectMetadata` (wrangler, `pkg/patch/style.go`) before it is merged, and refuses these.
    #[test]
    fn metadata_of_other_types_is_patched() {
        for metadata in ["{annotations: {a: true}}", "{labels: {version: 1.0}}"] {
            let files = [
                resource(
                    "a.yaml",
                    &format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {metadata}\n"),
                ),
                resource("overlays/one/a_patch.yaml", "data: {a: b}"),
            ];
            let processed = process(&files, &["one".to_owned()], &Weight::default()).unwrap();
            assert!(processed[0].content.contains(r#""data":{"a":"b"}"#));
        }
    }

    /// `convertToJSON` (`internal/helmdeployer/render/patch/patch.go`) reads with kyaml's yaml, which is yaml.v3; recorded from it.
    #[test]
    fn patched_files_are_read_as_yaml_v3_reads_them() {
        let patched = |base: &str, patch: &str| {
            let files = [
                resource("a.yaml", base),
                resource("overlays/one/a_patch.yaml", patch),
            ];
            process(&files, &["one".to_owned()], &Weight::default())
                .map(|files| files[0].content.clone())
                .map_err(|error| error.to_string())
        };
        let read = patched("x: yes\nd: 2026-01-02", "y: {z: on}").unwrap();
        assert_eq!(
            read,
            r#"{"d":"2026-01-02T00:00:00Z","x":"yes","y":{"z":"on"}}"#
        );
        assert_eq!(patched("# nothing\n", "a: 1").unwrap(), r#"{"a":1}"#);
        // Go writes both as JSON, and there `3.0` is `3`.
        let test = "- {op: test, path: /a, value: 3.0}";
        assert_eq!(patched("a: 3", test).unwrap(), r#"{"a":3}"#);
        assert_eq!(
            patched("b: &b {k: 1}\nc: {<<: *b, l: 2}", "{}").unwrap(),
            r#"{"b":{"k":1},"c":{"k":1,"l":2}}"#
        );
        assert_eq!(
            patched("data: {80: x}", "{}").unwrap_err(),
            "failed to convert a.yaml to json: json: unsupported type: map[interface {}]interface {}"
        );
        let error = patched("{}", "a: 1\na: 2").unwrap_err();
        assert!(
            error.ends_with("\"a\" already defined at line 1"),
            "{error}"
        );
    }

    #[test]
    fn deep_files_and_patches_need_no_stack() {
        let nested = |levels: usize| format!("a: {}{}", "{a: ".repeat(levels), "}".repeat(levels));
        let patched = |base: &str, patch: &str| {
            let files = [
                resource("a.yaml", base),
                resource("overlays/one/a_patch.yaml", patch),
            ];
            process(&files, &["one".to_owned()], &Weight::default())
                .map_err(|error| error.to_string())
        };
        assert!(patched(&nested(500), &nested(500)).is_ok());
        let error = patched(&nested(7_000), "a: 1").unwrap_err();
        assert!(error.ends_with("nested deeper than 512 levels"), "{error}");
        let path = "/a".repeat(501);
        let add = format!("[{{op: add, path: {path}, value: {{{}}}}}]", nested(500));
        let error = patched(&nested(500), &add).unwrap_err();
        assert!(error.ends_with("nested deeper than 1000 levels"), "{error}");
    }

    #[test]
    fn a_patch_needs_its_base() {
        let files = [resource("overlays/one/sub/x_patch.yaml", "a: 1")];
        let error = process(&files, &["one".to_owned()], &Weight::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed to find base file sub/x.yaml to patch"
        );
    }
}
