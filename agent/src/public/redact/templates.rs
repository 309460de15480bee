//! Redacts errors of a secret that is a template, as a password with `{{` in it is to `tpl`: they quote its code, of any length.

use std::collections::BTreeSet;

use templating::Dialect;

use super::limits::SHORTEST;
use super::readings::unescaped;

/// How the code in a template begins, and ends.
const CODE: [&str; 2] = ["{{", "}}"];

/// What Go writes behind what it has cut.
const CUT: &str = "...";

/// A single character gives nothing away.
const SHORTEST_WORD: usize = 2;

/// Keywords of templates.
const KEYWORDS: [&str; 11] = [
    "block", "break", "continue", "define", "else", "end", "if", "nil", "range", "template", "with",
];

/// What Helm gives them: a path that begins so says where something is.
const OBJECTS: [&str; 6] = [
    "Capabilities",
    "Chart",
    "Files",
    "Release",
    "Template",
    "Values",
];

/// Where words of the secret templates in a text stand behind the first of them, once it is known where all secrets are, from first to last.
pub(super) fn words_of(text: &str, secrets: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let templates = secrets.iter().copied();
    let templates: Vec<_> = templates
        .filter(|(begin, end)| text[*begin..*end].contains(CODE[0]))
        .collect();
    let Some(&(_, mut at)) = templates.first() else {
        return Vec::new();
    };
    // As Go quotes them.
    let templates = templates.iter().map(|(begin, end)| &text[*begin..*end]);
    let templates: Vec<_> = templates.map(unescaped).collect();
    let said = templates.iter().flat_map(|template| words_in(template));
    let said: BTreeSet<_> = said.collect();
    let mut found = Vec::new();
    for word in text[at..].split_inclusive(is_sign) {
        let bare = word.trim_end_matches(is_sign);
        let is_cut = text[at + bare.len()..].starts_with(CUT);
        if is_of(bare, is_cut, &said) {
            found.push((at, at + bare.len()));
        }
        at += word.len();
    }
    found
}

/// Whether a word is one of these, or the beginning of one: a number is quoted up to where it is none any more, other things are cut.
fn is_of(word: &str, is_cut: bool, said: &BTreeSet<&str>) -> bool {
    let mut following = said.range(word..);
    let Some(next) = following.next().filter(|next| next.starts_with(word)) else {
        return false;
    };
    let is_piece = is_cut || word.len() >= SHORTEST || word.contains(|c: char| c.is_ascii_digit());
    word.len() >= SHORTEST_WORD && (*next == word || is_piece)
}

fn is_sign(c: char) -> bool {
    !c.is_alphanumeric()
}

/// The words in the code of a template, without those of the language and those of paths that say where something is.
fn words_in(template: &str) -> impl Iterator<Item = &str> {
    let functions = Dialect::Helm.functions();
    let between = |c: char| c.is_whitespace() || "()|,=:\"'`".contains(c);
    let code = code_in(template).into_iter();
    let terms = code.flat_map(move |code| code.split(between));
    let words = terms
        .filter(|term| !is_path(term))
        .flat_map(|term| term.split(is_sign));
    words.filter(move |word| !KEYWORDS.contains(word) && functions.get(word).is_none())
}

/// Whether this is a path from one of Helm's objects, as `.Values.web.port`.
fn is_path(term: &str) -> bool {
    let mut names = term.trim_start_matches('$').split('.');
    let begins = names.next() == Some("") && names.next().is_some_and(|n| OBJECTS.contains(&n));
    begins && names.all(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_'))
}

/// The code between the braces of a template.
fn code_in(template: &str) -> Vec<&str> {
    let [begins, _] = CODE;
    let (mut code, mut rest) = (Vec::new(), template);
    while let Some((_, action)) = rest.split_once(begins) {
        let (within, behind) = action.split_at(end_of(action));
        code.push(within);
        rest = behind;
    }
    code
}

/// Where the code in braces ends, whatever texts in it say: where the template does, if they are not closed.
fn end_of(action: &str) -> usize {
    let [_, ends] = CODE;
    let (mut open, mut is_escaped) = (None, false);
    for (at, c) in action.char_indices() {
        match open {
            None if action[at..].starts_with(ends) => return at,
            None => open = "\"'`".contains(c).then_some(c),
            Some(begun) => {
                open = open.filter(|_| c != begun || is_escaped);
                is_escaped = c == '\\' && !is_escaped && begun != '`';
            }
        }
    }
    action.len()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::super::SensitiveData;

    const QUOTED: &str = r#"at <tpl .Values.a .>: error calling tpl: cannot parse template "#;

    /// As templates and Helm's `tpl` say it.
    #[rstest]
    #[case::no_function(
        r#""ab{{Zx9q}}cd": template: gotpl:1: function "Zx9q" not defined"#,
        r#""**REDACTED**": template: gotpl:1: function "**REDACTED**" not defined"#
    )]
    #[case::no_number(
        r#""ab{{12Zx9q}}cd": template: gotpl:1: bad number syntax: "12Z""#,
        r#""**REDACTED**": template: gotpl:1: bad number syntax: "**REDACTED**""#
    )]
    #[case::no_value(
        r#""ab{{.Zx9.Ab7}}cd": template: gotpl:1:8: executing "gotpl" at <.Zx9.Ab7>: nil pointer evaluating interface {}.Ab7"#,
        r#""**REDACTED**": template: gotpl:1:8: executing "gotpl" at <.**REDACTED**.**REDACTED**>: nil pointer evaluating interface {}.**REDACTED**"#
    )]
    #[case::no_secret(
        r#""{{Zx9q}}": template: gotpl:1: function "Zx9q" not defined"#,
        r#""{{Zx9q}}": template: gotpl:1: function "Zx9q" not defined"#
    )]
    #[case::in_its_texts(
        r#""a function {{ Zx9 \"}}Ab7\" `\nnow`Cd8 }}": template: gotpl:1: function "Zx9" not defined, Ab7, now, Cd8"#,
        r#""**REDACTED**": template: gotpl:1: function "**REDACTED**" not defined, **REDACTED**, now, **REDACTED**"#
    )]
    #[case::not_closed(
        r#""secret {{ Zx9 \"defined": template: gotpl:1: unterminated quoted string, defined"#,
        r#""**REDACTED**": template: gotpl:1: unterminated quoted string, **REDACTED**"#
    )]
    #[case::outside_of_its_braces(
        r#""a function is not defined at {{ 7Zx }}": template: gotpl:1: bad number syntax: "7Z" is not defined at"#,
        r#""**REDACTED**": template: gotpl:1: bad number syntax: "**REDACTED**" is not defined at"#
    )]
    #[case::in_the_words_of_the_language(
        r#""https://{{ include \"web\" .Values.site.host }}": template: gotpl:1:13: executing "gotpl" at <.Values.site.host>: nil pointer evaluating interface {}.host, include"#,
        r#""**REDACTED**": template: gotpl:1:13: executing "gotpl" at <.Values.site.host>: nil pointer evaluating interface {}.host, include"#
    )]
    #[case::cut_within_a_short_word(
        r#""ab{{.Longfieldname.Qwertzuiop.Yx}}cd": template: gotpl:1:19: executing "gotpl" at <.Longfieldname.Qwert...>: Qwert is another"#,
        r#""**REDACTED**": template: gotpl:1:19: executing "gotpl" at <.**REDACTED**.**REDACTED**...>: Qwert is another"#
    )]
    fn an_error_in_a_secret_template_keeps_its_message_without_the_templates_words(
        #[case] said: &str,
        #[case] redacted: &str,
    ) {
        let values = json!([
            "ab{{Zx9q}}cd",
            "ab{{12Zx9q}}cd",
            "ab{{.Zx9.Ab7}}cd",
            "a function {{ Zx9 \"}}Ab7\" `\nnow`Cd8 }}",
            "secret {{ Zx9 \"defined",
            "a function is not defined at {{ 7Zx }}",
            "https://{{ include \"web\" .Values.site.host }}",
            "ab{{.Longfieldname.Qwertzuiop.Yx}}cd",
        ]);
        let mut secrets = SensitiveData::default();
        secrets.add_value(&values);
        let whole = secrets.redact(&format!("{QUOTED}{said}"));
        assert_eq!(whole, format!("{QUOTED}{redacted}"));
    }
}
