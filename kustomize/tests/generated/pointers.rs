//! What no two runs of the real kustomize print alike.

/// What Go prints of pointers is another text each time, and ours has none.
pub(super) fn without_pointers(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(" &{0x") {
        out.push_str(&rest[..at]);
        let end = rest[at..].find('}').map_or(rest.len(), |end| at + end + 1);
        rest = &rest[end..];
    }
    out + rest
}
