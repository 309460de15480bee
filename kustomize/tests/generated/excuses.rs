//! Differences from the real kustomize that are meant, each as narrow as it can be told from what is wrong.

use serde_json::{Value, json};

use super::pointers::without_pointers;
use super::reference::Reference;
use super::{Answer, Case, ours};

/// Where we say something else on purpose (COMPATIBILITY.md).
pub(super) fn is_meant(want: &Answer, got: &Answer) -> bool {
    // Where Go falls over a file of nothing, ours finds nothing in it.
    if want.as_ref().is_err_and(|want| want.starts_with("PANIC")) {
        return true;
    }
    // Go does not read what it has written itself of a text that begins with a tab.
    let tab = "found a tab character where an indentation space is expected";
    if want.as_ref().is_err_and(|want| want.contains(tab))
        && !got.as_ref().is_err_and(|got| got.contains(tab))
    {
        return true;
    }
    // Go hashes a generated object that a patch made another kind by where its nodes stand in which file.
    if got
        .as_ref()
        .is_err_and(|got| got.contains("objects get no hash"))
    {
        return true;
    }
    let (Err(want), Err(got)) = (want, got) else {
        return false;
    };
    // Whole objects are not shown: those in conflict, those that a validator changed, those that cannot be written.
    let before =
        |text: &str, mark: &str| text.split_once(mark).map(|(before, _)| before.to_owned());
    let is_cut =
        |mark: &str| before(want, mark).is_some_and(|expected| before(got, mark) == Some(expected));
    let starts = [
        "map[string]interface {}",
        "error marshaling",
        "received error",
    ];
    let problem = [": yaml: ", ": json: "]
        .iter()
        .find_map(|mark| got.split_once(mark))
        .map(|(_, problem)| without_lines(problem));
    let is_unwritable = starts.iter().any(|start| want.starts_with(start))
        && problem.is_some_and(|problem| without_lines(want).contains(&problem));
    // Nor is what a Secret is to hold.
    let is_secret = is_cut("literal sources")
        && got.contains("literal sources: invalid literal source, expected key=value");
    // Go shares a value's node among all its places, so that one that was quoted is shown quoted elsewhere.
    // And it shows comments, which we do not keep.
    let bare = |text: &str| {
        let text = text.replace(['"', '\''], "").replace("# a comment", "");
        text.replace("# behind", "")
            .split_whitespace()
            .collect::<String>()
    };
    let shows_objects = ["node contents:", "for the following resource:"];
    let is_quoting =
        shows_objects.iter().any(|mark| want.contains(mark)) && bare(want) == bare(got);
    // Nor a Secret that several objects may be meant by.
    let is_secret =
        is_secret || got.contains("\nSecret.") && is_cut("\n**** Too many possible referral");
    let is_repeated_key =
        want.contains("already defined at line") && without_lines(want) == without_lines(got);
    // Of several objects with an ambiguous reference Go tells of any: it walks a map of them.
    let ambiguous = |text: &str| {
        let (reference, problem) = text
            .strip_prefix("updating name reference in '")?
            .split_once("': considering field '")?;
        let (_, referrer) = reference.split_once("' field of '")?;
        let is_ambiguous = problem.contains("]: found multiple possible referrals: ");
        is_ambiguous.then(|| referrer.to_owned())
    };
    let is_other_referrer =
        matches!((ambiguous(want), ambiguous(got)), (Some(want), Some(got)) if want != got);
    // Of a list where a name is expected Go shows where in its memory it is.
    let nameless = ": &yaml.RNode{fieldPath:";
    let is_address = want.contains(nameless)
        && want.ends_with("is expected to be either a string or a map of string")
        && want
            .split_once(nameless)
            .is_some_and(|(before, _)| got.starts_with(before))
        && got.ends_with("is expected to be either a string or a map of string");
    is_repeated_key
        || is_address
        || is_other_referrer
        || is_cut("produces ID conflict")
        || is_cut(": nodes unequal")
        || is_cut(": lists have different number of entries")
        || is_unwritable
        || is_secret
        || is_quoting
}

/// Go compares a condition in a path (`[name=b]`) with the comment behind a value too, and of some objects with comments it cannot read
/// what it has written itself. We keep none: without comments the answers must be the same.
pub(super) fn is_of_comments(
    case: &Case,
    want: &Answer,
    got: &Answer,
    reference: &mut Reference,
) -> bool {
    let has_condition = |text: &String| text.contains('[') && text.contains('=');
    let is_replaced = case.files.values().any(|text| text.contains("fieldPaths"))
        && case.files.values().any(has_condition);
    let is_unreadable = want.as_ref().is_err_and(|want| {
        want.starts_with("map[string]interface {}") && want.contains(": yaml: line ")
    });
    if !is_replaced && !is_unreadable {
        return false;
    }
    let mut bare = case.clone();
    for text in bare.files.values_mut() {
        *text = text.replace(" # behind", "").replace("# a comment", "");
    }
    let asked = |reference: &mut Reference| {
        let answer = reference.ask(&bare);
        answer.map_err(|error| without_pointers(&error))
    };
    bare.files != case.files && ours(&bare) == *got && asked(reference) == *got
}

/// A merged list may have one element twice in Go, which changes both where a replacement changes one by its place
/// (`replacements/element_twice.txt`). A JSON patch that changes nothing makes new elements of them: with one behind all other patches the
/// answers must be the same, and be what ours is without it.
pub(super) fn is_of_element_twice(
    case: &Case,
    want: &Answer,
    got: &Answer,
    reference: &mut Reference,
) -> bool {
    let is_replaced = case.files.values().any(|text| text.contains("fieldPaths"));
    let (true, Ok(_), Ok(got)) = (is_replaced, want, got) else {
        return false;
    };
    let mut renewed = case.clone();
    for (name, text) in &mut renewed.files {
        if !name.to_lowercase().contains("kustomization") {
            continue;
        }
        let Ok(mut root) = golib::yaml::decode(text.as_bytes()) else {
            return false;
        };
        let same = r#"[{"op": "copy", "from": "/kind", "path": "/kind"}]"#;
        let patch = json!({ "target": { "kind": ".*" }, "patch": same });
        match root.get_mut("patches") {
            Some(Value::Array(patches)) => patches.push(patch),
            _ => root["patches"] = json!([patch]),
        }
        let Ok(written) = golib::yaml::encode(&root) else {
            return false;
        };
        *text = written;
    }
    let objects = |text: &str| {
        let documents = text.split("\n---\n");
        let read = documents.map(|text| golib::yaml::decode(text.as_bytes()).ok());
        read.collect::<Option<Vec<Value>>>()
    };
    ours(&renewed).is_ok_and(|text| {
        objects(&text).is_some_and(|renewed| objects(got) == Some(renewed))
            && reference.ask(&renewed) == Ok(text)
    })
}

/// Lines are counted in a text that has our input's comments in Go.
fn without_lines(text: &str) -> String {
    let words = text
        .split_whitespace()
        .map(|word| word.trim_end_matches(':'));
    let kept = words.filter(|word| !word.bytes().all(|c| c.is_ascii_digit()));
    kept.collect::<Vec<_>>().join(" ")
}
