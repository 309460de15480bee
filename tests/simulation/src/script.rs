//! Histories as scripts that people can read, and tests repeat.

use std::time::Duration;

use crate::apiserver::Habit;
use crate::desired::{ACCOUNTS, Behaviour, Desired, Manifest, NAMESPACES, ObjectKind, Origin};
use crate::history::Outcome;
use crate::network::{Faults, Outage, Verb};
use crate::plan::{Action, Forgery, Plan, RELABELLED, Setting, Step};
use crate::world::Trouble;

/// A history as a script, with what it broke.
pub fn script(plan: &Plan, outcome: &Outcome) -> String {
    let mut lines = vec![print(plan)];
    for violation in &outcome.violations {
        lines.push(format!("  => {}: {}", violation.rule, violation.text));
    }
    lines.join("\n")
}

/// A plan as a script.
pub fn print(plan: &Plan) -> String {
    let Setting {
        has_own,
        has_fallback,
        fights_last,
        has_two,
        rests_briefly,
        has_pages,
    } = plan.setting;
    let mut lines = vec![format!(
        "seed {}: upstream {} a bundle of the agent's own; fleet-default {}{}{}{}{}",
        plan.seed,
        if has_own { "has" } else { "never had" },
        if has_fallback {
            "exists"
        } else {
            "does not exist"
        },
        if fights_last { "; fights last" } else { "" },
        if has_two { "; two agents" } else { "" },
        if rests_briefly { "; rests briefly" } else { "" },
        if has_pages { "; lists in pages" } else { "" },
    )];
    for step in &plan.steps {
        lines.push(format!(
            "  {:>8.3} s later {}",
            step.after.as_secs_f64(),
            step.action
        ));
    }
    lines.join("\n")
}

/// Reads what [`print()`] wrote; lines that say what was broken are passed over.
///
/// # Errors
/// The first line that is not understood.
pub fn parse(text: &str) -> Result<Plan, String> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let head = lines.next().ok_or("there is no line")?;
    let seed = head
        .strip_prefix("seed ")
        .and_then(|rest| rest.split_once(':'));
    let seed = seed.and_then(|(seed, _)| seed.parse().ok());
    let setting = Setting {
        has_own: head.contains("upstream has"),
        has_fallback: head.contains("fleet-default exists"),
        fights_last: head.contains("fights last"),
        has_two: head.contains("two agents"),
        rests_briefly: head.contains("rests briefly"),
        has_pages: head.contains("lists in pages"),
    };
    let steps = lines.filter(|line| !line.starts_with("=>")).map(|line| {
        let not_understood = || format!("not understood: {line}");
        let (after, action) = line.split_once(" s later ").ok_or_else(not_understood)?;
        let after: f64 = after.trim().parse().map_err(|_| not_understood())?;
        Ok(Step {
            after: Duration::from_millis((after * 1000.0).round() as u64),
            action: action_of(action).ok_or_else(not_understood)?,
        })
    });
    let steps: Vec<Step> = steps.collect::<Result<_, String>>()?;
    Ok(Plan {
        seed: seed.ok_or("there is no seed")?,
        setting,
        planned: steps.len(),
        steps,
    })
}

fn action_of(text: &str) -> Option<Action> {
    if let Some(rest) = text.strip_prefix("upstream wants of ") {
        let (bundle, desired) = rest.split_once(": ")?;
        return Some(Action::Want(bundle_of(bundle)?, desired_of(desired)?));
    }
    if let Some(faults) = text.strip_prefix("from now on: Faults ") {
        return Some(Action::Faults(faults_of(faults)));
    }
    let words: Vec<&str> = text.split(' ').collect();
    Some(match words.as_slice() {
        ["upstream", "deletes", bundle] => Action::Unwant(bundle_of(bundle)?),
        ["upstream", "is", "backed", ..] => Action::Backup,
        ["upstream", "is", "restored", rest @ ..] => Action::Restore(!rest.contains(&"new")),
        ["the", "controller", "sets", ..] => Action::SetBack,
        ["the", "controller", "imports", ..] => Action::Import,
        ["the", "local", "cluster", "is", "backed", ..] => Action::BackupLocal,
        ["the", "local", "cluster", "is", "restored", rest @ ..] => {
            Action::RestoreLocal(!rest.contains(&"new"))
        }
        ["the", server, "server", "answers", "no", verb, "of", plural] => {
            Action::Out(outage_of(server, verb, plural)?)
        }
        ["all", "bundles", "vanish", ..] => Action::Empty,
        ["what", "vanished", .., apart, "s", "apart"] => Action::Recreate(apart.parse().ok()?),
        ["what", "vanished", ..] => Action::Recreate(0),
        ["the", "content", "of", bundle, "vanishes"] => Action::LoseContent(bundle_of(bundle)?),
        ["contents", ..] => Action::ReturnContents,
        ["the", "secret", secret, ..] => {
            Action::ChangeSource(secret.strip_prefix("pull")?.parse().ok()?)
        }
        ["nobody", "reaches", "the", "local", ..] => Action::Down("local"),
        ["nobody", "reaches", "the", "upstream", ..] => Action::Down("upstream"),
        ["all", "servers", ..] => Action::Up,
        ["the", "repository", "is", "well"] => Action::Repository(None),
        ["the", "repository", trouble @ ..] => {
            let reported = trouble.join(" ");
            let known = Trouble::ALL.into_iter().find(|(_, text)| *text == reported);
            Action::Repository(Some(known?.0))
        }
        ["all", "watches", ..] => Action::BreakWatches,
        ["the", "servers", ..] => Action::Compact,
        ["the", "token", ..] => Action::ExpireToken,
        ["a", "person", "creates", "the", "definition", ..] => Action::Define,
        ["a", "person", "deletes", "the", "definition", ..] => Action::Undefine,
        ["a", "person", "creates", place] => placed(Action::Create, place)?,
        ["a", "person", "edits", place] => placed(Action::Edit, place)?,
        ["a", "person", "deletes", "the", "namespace", name] => {
            Action::DeleteNamespace(namespace_of(name)?)
        }
        ["a", "person", "deletes", "the", "records", "of", release] => {
            released(Action::DeleteRecords, release)?
        }
        ["a", "person", "puts", "a", "finalizer", "on", place] => placed(Action::Guard, place)?,
        ["a", "person", "deletes", place] => placed(Action::Delete, place)?,
        ["a", "person", "strips", .., place] => placed(Action::StripMarks, place)?,
        ["a", "person", "lets", ..] => Action::Permit,
        ["a", "person", "scales", place, ..] => scaled(Action::Scale, place)?,
        ["an", "autoscaler", "has", place, ..] => scaled(Action::Autoscale, place)?,
        [
            "somebody",
            "runs",
            "helm",
            "install",
            ..,
            release,
            "with",
            manifest,
        ] => {
            let (namespace, number) = release_of(release)?;
            Action::HelmInstall(namespace, number, manifest_of(manifest)?)
        }
        ["somebody", "runs", "helm", "rollback", .., release] => {
            released(Action::HelmRollback, release)?
        }
        ["somebody", "runs", "helm", "uninstall", .., release] => {
            released(Action::HelmUninstall, release)?
        }
        [
            "a",
            "tenant",
            "forges",
            "a",
            "record",
            "of",
            release,
            "with",
            manifest,
            like @ ..,
        ] => {
            let (namespace, number) = release_of(release)?;
            let like = like.join(" ");
            let (forgery, _) = Forgery::ALL
                .into_iter()
                .find(|(_, text)| text.trim_start() == like)?;
            Action::Forge(forgery, namespace, number, manifest_of(manifest)?)
        }
        ["a", "tenant", "labels", .., release, status] => {
            let (namespace, number) = release_of(release)?;
            let known = RELABELLED.into_iter().find(|known| known == status)?;
            Action::Relabel(namespace, number, known)
        }
        ["admission", "refuses", "nothing"] => Action::Accept,
        ["admission", "refuses", place] => placed(Action::Refuse, place)?,
        ["a", "quota", "refuses", "new", plural, "in", namespace] => {
            Action::Quota(namespace_of(namespace)?, kind_of(plural)?)
        }
        ["a", "webhook", "for", plural, "in", namespace, habit @ ..] => {
            let told = habit.join(" ");
            let (habit, _) = Habit::ALL.into_iter().find(|(_, text)| *text == told)?;
            Action::Webhook(namespace_of(namespace)?, kind_of(plural)?, habit)
        }
        ["no", "webhook", ..] => Action::NoWebhooks,
        ["the", "account", account, .., namespace] => {
            let account = account.trim_matches('"');
            let account = ACCOUNTS.into_iter().find(|known| *known == account)?;
            Action::Deny(account, namespace_of(namespace)?)
        }
        ["all", "accounts", ..] => Action::Grant,
        ["the", "pods", "of", place, "crash", again @ ..] => {
            let (namespace, name) = place.split_once("/d")?;
            Action::Crash(
                namespace_of(namespace)?,
                name.parse().ok()?,
                !again.is_empty(),
            )
        }
        ["all", "pods", ..] => Action::Recover,
        ["something", "keeps", place, ..] => placed(Action::Fight, place)?,
        ["nothing", "keeps", ..] => Action::Peace,
        ["kill", "-9"] => Action::Kill,
        ["kill", "-9", "after", requests, _] => Action::KillAfter(requests.parse().ok()?),
        ["the", "Go", "agent", "runs", "for", seconds, _, rest @ ..] => {
            Action::Go(seconds.parse().ok()?, !rest.is_empty())
        }
        ["the", "agent", "is", "cut", ..] => Action::Cut,
        ["the", "agent", "is", "down", "for", seconds, _] => Action::Pause(seconds.parse().ok()?),
        ["the", "clock", "jumps", "by", seconds, _] => Action::Jump(seconds.parse().ok()?),
        ["nothing", "happens", "for", seconds, _] => Action::Wait(seconds.parse().ok()?),
        _ => return None,
    })
}

fn outage_of(server: &str, verb: &str, plural: &str) -> Option<Outage> {
    let (server, plurals) = Outage::PLURALS
        .into_iter()
        .find(|(known, _)| *known == server)?;
    let (verb, _) = Verb::ALL.into_iter().find(|(_, text)| *text == verb)?;
    let plural = plurals.iter().find(|known| **known == plural)?;
    Some(Outage {
        server,
        verb,
        plural,
    })
}

fn placed(action: fn(usize, Manifest) -> Action, place: &str) -> Option<Action> {
    let (namespace, object) = place.split_once('/')?;
    Some(action(namespace_of(namespace)?, manifest_of(object)?))
}

fn released(action: fn(usize, u8) -> Action, release: &str) -> Option<Action> {
    let (namespace, number) = release_of(release)?;
    Some(action(namespace, number))
}

fn scaled(action: fn(usize, u8) -> Action, place: &str) -> Option<Action> {
    let (namespace, name) = place.split_once("/d")?;
    Some(action(namespace_of(namespace)?, name.parse().ok()?))
}

fn kind_of(plural: &str) -> Option<ObjectKind> {
    let mut kinds = ObjectKind::ALL.into_iter();
    kinds.find(|kind| kind.plural().1 == plural)
}

fn bundle_of(name: &str) -> Option<usize> {
    name.strip_prefix('b')?.parse().ok()
}

fn namespace_of(name: &str) -> Option<usize> {
    NAMESPACES.iter().position(|known| *known == name)
}

fn release_of(text: &str) -> Option<(usize, u8)> {
    let (namespace, number) = text.split_once("/r")?;
    Some((namespace_of(namespace)?, number.parse().ok()?))
}

/// `d1=v2!fails`, or only `d1`; `pull0` is the name of a copy.
fn manifest_of(text: &str) -> Option<Manifest> {
    let (text, behaviour) = match text.split_once('!') {
        Some((text, "fails")) => (text, Behaviour::Fails),
        Some((text, "refused")) => (text, Behaviour::Refused),
        Some((text, "guarded")) => (text, Behaviour::Guarded),
        Some(_) => return None,
        None => (text, Behaviour::Ready),
    };
    let (name, value) = text.split_once("=v").unwrap_or((text, "0"));
    let (kind, name) = match name.strip_prefix("pull") {
        Some(number) => (ObjectKind::Secret, 100 + number.parse::<u8>().ok()?),
        None => {
            let kind = ObjectKind::ALL
                .into_iter()
                .find(|kind| name.starts_with(kind.letter()))?;
            (kind, name[1..].parse().ok()?)
        }
    };
    Some(Manifest {
        kind,
        name,
        value: value.parse().ok()?,
        behaviour,
    })
}

/// What [`Desired::describe`] prints.
fn desired_of(text: &str) -> Option<Desired> {
    let (release, rest) = text.split_once(" [")?;
    let (manifests, options) = rest.split_once(']')?;
    let (namespace, release) = release_of(release)?;
    let manifests = manifests.split(' ').map(manifest_of);
    let mut desired = Desired::of(namespace, release, manifests.collect::<Option<_>>()?);
    let mut options = options.split(' ').filter(|word| !word.is_empty());
    while let Some(option) = options.next() {
        match option {
            "takeOwnership" => desired.take_ownership = true,
            "atomic" => desired.atomic = true,
            "force" => desired.force = true,
            "correctDrift" => desired.correct_drift = true,
            "keepResources" => desired.keep_resources = true,
            "contentMissing" => desired.is_missing = true,
            "repository" => desired.origin = Origin::Repository,
            "registry" => desired.origin = Origin::Registry,
            "defines" => desired.defines = true,
            "as" => {
                let account = options.next()?;
                desired.account = ACCOUNTS.iter().position(|known| *known == account)?;
            }
            "label" => desired.namespace_label = options.next()?.strip_prefix("team")?.parse().ok(),
            "sync" => desired.sync = options.next()?.parse().ok()?,
            "history" => desired.max_history = options.next()?.parse().ok()?,
            "copies" => {}
            number => {
                desired
                    .copies
                    .insert(number.trim_matches(['{', '}', ',']).parse().ok()?);
            }
        }
    }
    Some(desired)
}

fn faults_of(text: &str) -> Faults {
    let figure = |name: &str| {
        let rest = text
            .split_once(&format!("{name}: "))
            .map_or("", |(_, rest)| rest);
        let end = rest.find([',', ' ']).unwrap_or(rest.len());
        rest[..end].parse().unwrap_or(0)
    };
    Faults {
        lost_requests: figure("lost_requests"),
        lost_answers: figure("lost_answers"),
        errors: figure("errors"),
        slowest: figure("slowest"),
        lag: figure("lag"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_the_plan_it_was_printed_from() {
        for seed in 0..500 {
            let plan = Plan::of(seed);
            let text = print(&plan);
            let read = parse(&text).expect(&text);
            assert_eq!(print(&read), text);
        }
        assert!(parse("seed 1:\n 1.0 s later the moon rises").is_err());
    }
}
