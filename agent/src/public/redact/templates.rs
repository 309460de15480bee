//! What is wrong with a secret that is a template, as a password with `{{` in it is to `tpl`: that is said in its own words, of any length.

use super::parts::Parts;

/// How the code in a template begins.
const CODE: &str = "{{";

/// A single character tells nothing.
const SHORTEST_WORD: usize = 2;

/// Where words of the secret templates in a text stand behind the first of them, once it is known where all secrets are.
pub(super) fn words_of(text: &str, secrets: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let templates = secrets.iter().copied();
    let templates: Vec<_> = templates
        .filter(|(begin, end)| text[*begin..*end].contains(CODE))
        .collect();
    let Some(&(_, mut at)) = templates.first() else {
        return Vec::new();
    };
    let said = templates.iter().map(|(begin, end)| &text[*begin..*end]);
    let said = Parts::of(said.collect::<Vec<_>>().join("\0").as_bytes());
    let is_said = |word: &str| {
        let mut is_said = false;
        said.find(word.bytes(), |_| is_said = true);
        is_said
    };
    let mut found = Vec::new();
    let is_sign = |c: char| !c.is_alphanumeric();
    for word in text[at..].split_inclusive(is_sign) {
        let bare = word.trim_end_matches(is_sign);
        if bare.len() >= SHORTEST_WORD && is_said(bare) {
            found.push((at, at + bare.len()));
        }
        at += word.len();
    }
    found
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
    fn what_is_wrong_with_a_template_that_is_secret_is_told_without_its_words(
        #[case] said: &str,
        #[case] redacted: &str,
    ) {
        let values = json!(["ab{{Zx9q}}cd", "ab{{12Zx9q}}cd", "ab{{.Zx9.Ab7}}cd"]);
        let mut secrets = SensitiveData::default();
        secrets.add_value(&values);
        let whole = secrets.redact(&format!("{QUOTED}{said}"));
        assert_eq!(whole, format!("{QUOTED}{redacted}"));
    }
}
