//! A tree to matchers, joined and simplified as the library does it (`compiler`): its results are not always those of the
//! pattern as it is written, and charts see them.

use super::matcher::Matcher;
use super::pattern::Node;

pub(super) fn compile(nodes: Vec<Node>, separators: &[char]) -> Matcher {
    node(&Node::Pattern(nodes), separators)
}

fn node(node: &Node, separators: &[char]) -> Matcher {
    match node {
        Node::AnyOf(alternatives) => match factored(alternatives) {
            Some(factored) => self::node(&factored, separators),
            None => Matcher::AnyOf(children(alternatives, separators)),
        },
        Node::Pattern(nodes) if nodes.is_empty() => Matcher::Nothing,
        Node::Pattern(nodes) => simplified(tree(&joined(children(nodes, separators)))),
        Node::Any => simplified(Matcher::Any(separators.to_vec())),
        Node::Super => Matcher::Super,
        Node::Single => Matcher::Single(separators.to_vec()),
        Node::Nothing => Matcher::Nothing,
        Node::List { chars, not } => simplified(Matcher::List {
            chars: chars.clone(),
            not: *not,
        }),
        Node::Range { low, high, not } => Matcher::Range {
            low: *low,
            high: *high,
            not: *not,
        },
        Node::Text(text) => Matcher::Text(text.clone()),
    }
}

fn children(nodes: &[Node], separators: &[char]) -> Vec<Matcher> {
    let compiled = nodes.iter().map(|child| node(child, separators));
    compiled.map(simplified).collect()
}

/// A simpler matcher for the same, or nearly.
fn simplified(matcher: Matcher) -> Matcher {
    match matcher {
        Matcher::Any(separators) if separators.is_empty() => Matcher::Super,
        Matcher::AnyOf(mut matchers) if matchers.len() == 1 => {
            matchers.pop().unwrap_or(Matcher::Nothing)
        }
        Matcher::List { chars, not: false } if chars.len() == 1 => {
            Matcher::Text(chars.into_iter().collect())
        }
        Matcher::Tree { value, left, right } => {
            let simple = |side: Option<Box<Matcher>>| side.map(|side| simplified(*side));
            let (left, right) = (simple(left), simple(right));
            let Matcher::Text(text) = *value else {
                return Matcher::tree(*value, left, right);
            };
            match (left, right) {
                (None, None) => Matcher::Text(text),
                (Some(Matcher::Super), Some(Matcher::Super)) => Matcher::Contains {
                    needle: text,
                    not: false,
                },
                (Some(Matcher::Super), None) => Matcher::Suffix(text),
                (None, Some(Matcher::Super)) => Matcher::Prefix(text),
                (None, Some(Matcher::Suffix(suffix))) => Matcher::PrefixSuffix(text, suffix),
                (Some(Matcher::Prefix(prefix)), None) => Matcher::PrefixSuffix(prefix, text),
                (Some(Matcher::Any(separators)), None) => Matcher::SuffixAny(text, separators),
                (None, Some(Matcher::Any(separators))) => Matcher::PrefixAny(text, separators),
                (left, right) => Matcher::tree(Matcher::Text(text), left, right),
            }
        }
        other => other,
    }
}

/// Matchers one after the other as a tree around the last of those with the greatest length.
fn tree(matchers: &[Matcher]) -> Matcher {
    match matchers {
        [] => return Matcher::Nothing,
        [only] => return only.clone(),
        _ => {}
    }
    if let Some(glued) = glued(matchers) {
        return glued;
    }
    let longest = matchers
        .iter()
        .enumerate()
        .filter_map(|(at, matcher)| Some((matcher.length()?, at)))
        .max();
    let Some((_, at)) = longest else {
        return Matcher::tree(matchers[0].clone(), None, Some(tree(&matchers[1..])));
    };
    let side = |matchers: &[Matcher]| (!matchers.is_empty()).then(|| tree(matchers));
    Matcher::tree(
        matchers[at].clone(),
        side(&matchers[..at]),
        side(&matchers[at + 1..]),
    )
}

fn glued(matchers: &[Matcher]) -> Option<Matcher> {
    if matchers.len() <= 1 {
        return None;
    }
    every(matchers).or_else(|| row(matchers))
}

/// Matchers of fixed length.
fn row(matchers: &[Matcher]) -> Option<Matcher> {
    let length = matchers.iter().map(Matcher::length).sum::<Option<usize>>();
    Some(Matcher::Row {
        length: length?,
        matchers: matchers.to_vec(),
    })
}

/// Wildcards with the same separators.
fn every(matchers: &[Matcher]) -> Option<Matcher> {
    let (mut any, mut everything, mut least) = (false, false, 0);
    let mut separators: Option<&[char]> = None;
    for matcher in matchers {
        let own: &[char] = match matcher {
            Matcher::Super => {
                everything = true;
                &[]
            }
            Matcher::Any(separators) => {
                any = true;
                separators
            }
            Matcher::Single(chars) | Matcher::List { chars, not: true } => {
                least += 1;
                chars
            }
            _ => return None,
        };
        if **separators.get_or_insert(own) != *own {
            return None;
        }
    }
    let separators = separators.unwrap_or_default();
    if everything && !any && least == 0 {
        return Some(Matcher::Super);
    }
    if any && !everything && least == 0 {
        return Some(Matcher::Any(separators.to_vec()));
    }
    if (any || everything) && least > 0 && separators.is_empty() {
        return Some(Matcher::Min(least));
    }
    let mut every = Vec::new();
    if least > 0 {
        every.push(Matcher::Min(least));
        if !any && !everything {
            every.push(Matcher::Max(least));
        }
    }
    if !separators.is_empty() {
        every.push(Matcher::Contains {
            needle: separators.iter().collect(),
            not: true,
        });
    }
    Some(Matcher::EveryOf(every))
}

/// Joins neighbours, most at a time first, until none can be joined.
fn joined(mut matchers: Vec<Matcher>) -> Vec<Matcher> {
    loop {
        let mut best: Option<(Matcher, usize, usize)> = None;
        for start in 0..matchers.len() {
            for end in (start + 1..=matchers.len()).rev() {
                let Some(found) = glued(&matchers[start..end]) else {
                    continue;
                };
                let is_better = match &best {
                    None => true,
                    Some((known, from, to)) => {
                        let is_longer = match (known.length(), found.length()) {
                            (Some(known), Some(found)) => found > known,
                            _ => false,
                        };
                        is_longer || to - from < end - start
                    }
                };
                if is_better {
                    best = Some((found, start, end));
                }
            }
        }
        let Some((found, start, end)) = best else {
            return matchers;
        };
        matchers.splice(start..end, [found]);
    }
}

/// Alternatives with what they have in common, at the beginning and at the end, taken out.
fn factored(alternatives: &[Node]) -> Option<Node> {
    let patterns: Option<Vec<&[Node]>> = alternatives
        .iter()
        .map(|node| match node {
            Node::Pattern(nodes) => Some(&**nodes),
            _ => None,
        })
        .collect();
    let patterns = patterns?;
    let (left, right) = common(&patterns);
    if left == 0 && right == 0 {
        return None;
    }
    let first = *patterns.first()?;
    let mut result = Vec::new();
    if left > 0 {
        result.push(Node::Pattern(first[..left].to_vec()));
    }
    let mut rest: Vec<Node> = Vec::new();
    for pattern in &patterns {
        let middle = &pattern[left..pattern.len() - right];
        let node = match middle.is_empty() {
            true => Node::Nothing,
            false => Node::Pattern(middle.to_vec()),
        };
        if !rest.contains(&node) {
            rest.push(node);
        }
    }
    match rest.as_slice() {
        [Node::Nothing] => {}
        [_] => result.append(&mut rest),
        _ => result.push(Node::AnyOf(rest)),
    }
    if right > 0 {
        result.push(Node::Pattern(first[first.len() - right..].to_vec()));
    }
    Some(Node::Pattern(result))
}

/// How many nodes all patterns have in common at the beginning and at the end.
fn common(patterns: &[&[Node]]) -> (usize, usize) {
    let Some(shortest) = patterns.iter().min_by_key(|pattern| pattern.len()) else {
        return (0, 0);
    };
    if patterns.len() <= 1 {
        return (0, 0);
    }
    let (mut left, mut right) = (0, 0);
    let (mut left_ends, mut right_ends) = (false, false);
    for at in 0..shortest.len() {
        if left + right >= shortest.len() || left_ends && right_ends {
            break;
        }
        let from_end = shortest.len() - 1 - at;
        for pattern in patterns {
            if std::ptr::eq(*pattern, *shortest) || left_ends && right_ends {
                continue;
            }
            left_ends = left_ends || shortest[at] != pattern[at];
            // Where both meet, the left takes it.
            right_ends = right_ends || !left_ends && from_end <= at;
            right_ends = right_ends
                || shortest[from_end] != pattern[pattern.len() - shortest.len() + from_end];
        }
        left += usize::from(!left_ends);
        right += usize::from(!right_ends);
    }
    (left, right)
}
