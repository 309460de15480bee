//! What is asked.

use serde_json::{Value as Json, json};

use super::{Answer, Question};
use crate::Choices;
use crate::grammar::{self, Vocabulary};

/// A family of questions.
pub struct Kind {
    pub name: &'static str,
    /// How many bytes of choices a case gets at most.
    pub max_bytes: usize,
    /// Of a hundred cases of a run, how many are of this kind.
    pub share: u64,
    pub question: fn(&mut Choices<'_>) -> Question,
}

pub const KINDS: &[Kind] = &[
    Kind {
        name: "helm",
        max_bytes: 400,
        share: 30,
        question: |c| language(c, Vocabulary::Helm),
    },
    #[cfg(feature = "charts")]
    Kind {
        name: "chart",
        max_bytes: 400,
        share: 12,
        question: chart,
    },
    Kind {
        name: "fleet",
        max_bytes: 400,
        share: 8,
        question: |c| language(c, Vocabulary::Fleet),
    },
    Kind {
        name: "builtin",
        max_bytes: 300,
        share: 12,
        question: |c| language(c, Vocabulary::Builtin),
    },
    Kind {
        name: "yaml",
        max_bytes: 120,
        share: 10,
        question: |c| text("yaml", grammar::yaml_text(c)),
    },
    Kind {
        name: "yaml_strict",
        max_bytes: 100,
        share: 2,
        question: |c| text("yaml_strict", grammar::yaml_text(c)),
    },
    Kind {
        name: "yaml_write",
        max_bytes: 150,
        share: 5,
        question: yaml_write,
    },
    Kind {
        name: "pretty",
        max_bytes: 150,
        share: 3,
        question: pretty,
    },
    Kind {
        name: "regexp",
        max_bytes: 120,
        share: 8,
        question: regexp,
    },
    Kind {
        name: "printf",
        max_bytes: 60,
        share: 5,
        question: printf,
    },
    Kind {
        name: "glob",
        max_bytes: 60,
        share: 2,
        question: |c| names("glob", c),
    },
    Kind {
        name: "match",
        max_bytes: 60,
        share: 2,
        question: |c| names("match", c),
    },
    Kind {
        name: "semver",
        max_bytes: 60,
        share: 3,
        question: semver,
    },
    Kind {
        name: "time",
        max_bytes: 60,
        share: 4,
        question: time,
    },
    Kind {
        name: "toml",
        max_bytes: 100,
        share: 4,
        question: toml,
    },
    Kind {
        name: "json",
        max_bytes: 100,
        share: 2,
        question: json_case,
    },
];

fn language(choices: &mut Choices<'_>, vocabulary: Vocabulary) -> Question {
    let case = grammar::case(choices, vocabulary);
    Question {
        what: "template",
        dialect: match vocabulary {
            Vocabulary::Builtin => "text",
            Vocabulary::Fleet => "fleet",
            _ => "helm",
        },
        template: case.template,
        others: case.others,
        data: case.data,
        ..Question::default()
    }
}

/// A chart whose one manifest calls the template, so that errors pass through Helm's engine and what it makes of them.
#[cfg(feature = "charts")]
fn chart(choices: &mut Choices<'_>) -> Question {
    const CALLS: [&str; 6] = [
        "{{ include \"c/templates/_t.tpl\" .Values }}",
        "{{ template \"c/templates/_t.tpl\" .Values }}",
        "a:\n  {{- include \"c/templates/_t.tpl\" .Values | nindent 2 }}\n",
        "{{ define \"x\" }}{{ include \"c/templates/_t.tpl\" . }}{{ end }}{{ include \"x\" .Values }}",
        "{{ tpl \"{{ include \\\"c/templates/_t.tpl\\\" . }}\" .Values }}",
        "{{ .Files.Get \"_t.tpl\" }}{{ tpl (.Files.Get \"t\") .Values }}",
    ];
    let call = choices.pick(&CALLS);
    let case = grammar::case(choices, Vocabulary::Helm);
    Question {
        what: "chart",
        text: call.to_owned(),
        template: case.template,
        others: case.others,
        data: case.data,
        ..Question::default()
    }
}

fn text(what: &'static str, text: String) -> Question {
    Question {
        what,
        text,
        ..Question::default()
    }
}

fn helm(template: impl Into<String>, data: Json) -> Question {
    Question {
        what: "template",
        dialect: "helm",
        template: template.into(),
        data,
        ..Question::default()
    }
}

fn yaml_write(choices: &mut Choices<'_>) -> Question {
    Question {
        what: "yaml_write",
        data: grammar::value(choices, 5),
        ..Question::default()
    }
}

fn pretty(choices: &mut Choices<'_>) -> Question {
    let data = json!({ "v": grammar::value(choices, 5) });
    helm(
        "{{ toYamlPretty .v }}|{{ toJson .v }}|{{ toPrettyJson .v }}|{{ toRawJson .v }}",
        data,
    )
}

fn regexp(choices: &mut Choices<'_>) -> Question {
    let data = json!({
        "p": grammar::pattern(choices),
        "s": grammar::subject(choices),
        "r": choices.pick(&["x", "$1", "${1}a", "$n", "$$", "[$0]"]),
    });
    let count = choices.pick(&["-1", "0", "1", "2", "3"]);
    helm(
        format!(
            "{{{{ mustRegexFindAll .p .s {count} | toJson }}}} {{{{ mustRegexReplaceAll .p .s .r | quote }}}} \
             {{{{ mustRegexSplit .p .s {count} | toJson }}}} {{{{ regexMatch .p .s }}}}"
        ),
        data,
    )
}

fn printf(choices: &mut Choices<'_>) -> Question {
    let data = json!({ "f": grammar::printf_format(choices, false), "a": grammar::small_value(choices), "b": grammar::small_value(choices) });
    const ARGS: [&str; 20] = [
        ".a",
        ".b",
        "1",
        "-5",
        "'x'",
        "1.5",
        "(list 1 \"a\" nil)",
        "(int64 7)",
        "true",
        "nil",
        "(dict \"k\" 1.5)",
        "(until 3)",
        "(splitList \",\" \"a,é\")",
        "1+2i",
        "\"s\\xff\"",
        "(semver \"1.2.3-a\")",
        "(toDate \"2006\" \"2024\")",
        "(mustToDuration \"90s\")",
        "1e100",
        "(urlParse \"http://h/p\")",
    ];
    let mut template = "{{ printf .f".to_owned();
    for _ in 0..choices.below(4) {
        template.push(' ');
        template.push_str(choices.pick(&ARGS));
    }
    template.push_str(" }}");
    helm(template, data)
}

fn names(what: &'static str, choices: &mut Choices<'_>) -> Question {
    let mut question = text(what, grammar::glob(choices));
    for _ in 0..4 {
        let name = (0..choices.below(5))
            .map(|_| choices.pick(&["a", "b", "/", ".", "c", "é", "-", "a/b", "ab", "*"]));
        question.names.push(name.collect());
    }
    question
}

fn semver(choices: &mut Choices<'_>) -> Question {
    let mut question = text("semver", grammar::constraint(choices));
    for _ in 0..3 {
        question.names.push(grammar::version(choices));
    }
    question
}

fn time(choices: &mut Choices<'_>) -> Question {
    let layout = grammar::layout(choices);
    let data = json!({
        "l": layout,
        "k": match choices.chance(40) { true => layout.clone(), false => grammar::layout(choices) },
        "s": grammar::time_text(choices),
        "u": grammar::duration(choices),
        "n": choices.below(65536) as f64 * 65_537.0 - 1e9,
    });
    let template = choices.pick(&[
        "{{ mustToDate .l .s }}",
        "{{ dateInZone .l (int64 .n) \"Europe/Berlin\" }}",
        "{{ mustToDate .l (dateInZone .l (int64 .n) \"America/New_York\") }}",
        "{{ mustToDuration .u }} {{ durationRound .u }} {{ duration .n }} {{ durationHours .u }}",
        "{{ mustDateModify .u (toDate \"2006-01-02\" \"2024-02-29\") }}",
        "{{ date .k (mustToDate .l .s) }}",
        "{{ durationRoundTo .u \"1m\" }} {{ durationTruncateTo .u .s }}",
    ]);
    helm(template, data)
}

fn toml(choices: &mut Choices<'_>) -> Question {
    let data = json!({ "s": grammar::toml_text(choices), "v": { "a": grammar::small_value(choices), "b": grammar::small_value(choices) } });
    let template = choices.pick(&[
        "{{ fromToml .s | toJson }}",
        "{{ fromToml .s | toToml }}",
        "{{ mustToToml .v }}",
        "{{ fromToml (toToml .v) | toJson }}",
    ]);
    helm(template, data)
}

fn json_case(choices: &mut Choices<'_>) -> Question {
    let data = json!({ "s": grammar::json_text(choices) });
    helm(
        "{{ fromJson .s | toJson }}{{ fromJsonArray .s | toYaml }}{{ mustFromJson .s | printf \"%#v\" }}",
        data,
    )
}

/// Why this difference is known and meant; each is a line of COMPATIBILITY.md.
pub(super) fn explained(
    question: &Question,
    ours: &Answer,
    theirs: &Answer,
) -> Option<&'static str> {
    let says = |answer: &Answer, part: &str| match answer {
        Ok(output) => String::from_utf8_lossy(output).contains(part),
        Err(error) => error.contains(part),
    };
    if says(ours, "reflect.Value.Slice: slice index out of bounds")
        && !says(theirs, "slice index out of bounds")
    {
        return Some("Go slices up to the capacity");
    }
    if says(ours, "error calling slice: index out of range") && !says(theirs, "index out of range")
    {
        return Some("Go slices up to the capacity");
    }
    // The address of a time's zone, in the base of the verb.
    const ADDRESS: [&str; 6] = [
        "824633720832",
        "c000000000",
        "C000000000",
        "14000000000000",
        "1100000000000000000000000000000000000000",
        "\u{fffd}",
    ];
    if question.template.contains("printf")
        && question.template.contains("Date")
        && ADDRESS.iter().any(|address| says(ours, address))
    {
        return Some("Go prints addresses of zones");
    }
    None
}
