//! Random texts: words that mean something to some format, and texts of small formats.

use crate::Choices;

pub(super) const WORDS: [&str; 74] = [
    "",
    "a",
    "b",
    "foo",
    "Foo Bar",
    "hello world",
    "true",
    "false",
    "yes",
    "y",
    "n",
    "null",
    "~",
    "nil",
    "0",
    "1",
    "-1",
    "012",
    "0x1F",
    "0b11",
    "0o17",
    "1_000",
    "1e3",
    "1.5",
    ".5",
    "+1",
    ".inf",
    ".nan",
    "1:30",
    "2001-01-01",
    "2001-12-14t21:59:43.10-05:00",
    "12h30m",
    "v1.2.3",
    "1.0.0-beta.1+x",
    "- a",
    "a: b",
    "a:b",
    "# c",
    "a #b",
    "[a]",
    "{a: 1}",
    "&x",
    "*x",
    "!x",
    "|",
    ">",
    "%d",
    "@",
    "`",
    "multi\nline\n",
    "\nlead",
    " lead",
    "trail ",
    "tab\there",
    "\r\n",
    "a\\b",
    "\"q\"",
    "it's",
    "<a&b>",
    "é",
    "日本語",
    "😀",
    "\u{2028}",
    "\u{85}",
    "\u{feff}",
    "\u{7f}",
    "\u{1}",
    "=",
    "<<",
    "camelCase",
    "snake_case_x",
    "{{ . }}",
    "http://h/p?q=1",
    "aGVsbG8=",
];
pub(super) const CHARS: [&str; 40] = [
    "a", "b", "A", "Z", "0", "1", "9", " ", " ", "\n", "\t", ":", "-", "_", ".", ",", "'", "\"",
    "\\", "/", "#", "[", "]", "{", "}", "&", "*", "!", "%", "<", ">", "|", "=", "$", "(", ")", "é",
    "世", "𝄞", "\u{301}",
];

/// A short text that some format, function or reader takes for something special.
pub fn words(choices: &mut Choices<'_>) -> String {
    match choices.below(8) {
        0..=4 => choices.pick(&WORDS).to_owned(),
        5 => format!("{}{}", choices.pick(&WORDS), choices.pick(&WORDS)),
        6 => format!("{} {}", choices.pick(&WORDS), choices.pick(&WORDS)),
        _ => some(choices, 8, &CHARS),
    }
}

/// Up to `count` pieces, one after the other.
pub(super) fn some(choices: &mut Choices<'_>, count: usize, pieces: &[&str]) -> String {
    (0..choices.below(count + 1))
        .map(|_| choices.pick(pieces))
        .collect()
}

/// What `printf` takes; `%p` only where nobody compares.
pub fn printf_format(choices: &mut Choices<'_>, with_pointers: bool) -> String {
    let mut out = String::new();
    for _ in 0..=choices.below(4) {
        if choices.chance(30) {
            out.push_str(choices.pick(&["a", " ", "é", "100%%", "|", "\n"]));
        }
        out.push('%');
        for _ in 0..choices.below(3) {
            out.push_str(choices.pick(&["-", "+", "#", "0", " "]));
        }
        if choices.chance(8) {
            out.push_str(choices.pick(&["[1]", "[2]", "[3]", "[0]", "[x]", "[", "[1", "[]"]));
        }
        if choices.chance(40) {
            out.push_str(choices.pick(&["1", "2", "3", "5", "8", "12", "20", "*", "03", "-4"]));
        }
        if choices.chance(30) {
            out.push_str(
                choices.pick(&[".", ".0", ".1", ".2", ".3", ".5", ".10", ".*", ".-1", ".20"]),
            );
        }
        let verbs = [
            "v", "d", "s", "q", "x", "X", "T", "t", "b", "c", "o", "O", "U", "e", "E", "f", "F",
            "g", "G", "w", "%", "!", "é", "p",
        ];
        let count = verbs.len() - usize::from(!with_pointers);
        if !choices.chance(2) {
            out.push_str(choices.pick(&verbs[..count]));
        }
    }
    out
}

/// A layout of Go's `time` package.
pub fn layout(choices: &mut Choices<'_>) -> String {
    if choices.chance(25) {
        return choices
            .pick(&[
                "2006-01-02",
                "2006-01-02T15:04:05Z07:00",
                "Mon Jan _2 15:04:05 MST 2006",
                "02 Jan 06 15:04 -0700",
                "3:04PM",
                "2006-01-02 15:04:05.000",
            ])
            .to_owned();
    }
    some(
        choices,
        7,
        &[
            "2006",
            "06",
            "01",
            "1",
            "Jan",
            "January",
            "02",
            "2",
            "_2",
            "15",
            "03",
            "3",
            "04",
            "4",
            "05",
            "5",
            "PM",
            "pm",
            "MST",
            "Z07:00",
            "Z0700",
            "Z07",
            "Z070000",
            "Z07:00:00",
            "-07:00",
            "-0700",
            "-07",
            "-07:00:00",
            "-070000",
            ".000",
            ",999",
            ".999999999",
            ".9",
            ",0",
            "Mon",
            "Monday",
            "002",
            "__2",
            "T",
            " ",
            "-",
            "/",
            ":",
            "_2006",
            "x",
            "é",
            "0",
            "Mo",
        ],
    )
}

/// Something that looks like a time.
pub fn time_text(choices: &mut Choices<'_>) -> String {
    match choices.below(3) {
        0 => choices
            .pick(&[
                "2024-02-29",
                "2023-02-29",
                "2024-01-02T03:04:05Z",
                "2024-01-02T03:04:05.678+02:00",
                "Tue Jan  2 15:04:05 CET 2024",
                "3:04PM",
                "12:00AM",
                "02 Jan 24 15:04 -0700",
                "0000-00-00",
                "9999-12-31",
                "2024-13-01",
                "24:00:00",
                "-0001-01-01",
                "2024-01-02 03:04:05.123",
            ])
            .to_owned(),
        _ => some(
            choices,
            9,
            &[
                "2024",
                "24",
                "01",
                "1",
                "12",
                "13",
                "31",
                "32",
                "00",
                "Jan",
                "jan",
                "January",
                "Mon",
                "Tuesday",
                "AM",
                "pm",
                "UTC",
                "CET",
                "GMT+3",
                "Z",
                "+02:00",
                "-0700",
                "+07",
                "+25:00",
                ".5",
                ",123456789",
                ".0000000001",
                ":",
                "-",
                "T",
                " ",
                "/",
                "366",
                "059",
                "60",
                "_",
            ],
        ),
    }
}

/// A duration of Go, or nearly.
pub fn duration(choices: &mut Choices<'_>) -> String {
    if choices.chance(60) {
        return choices
            .pick(&[
                "1h",
                "0",
                "2m30s",
                "1.5h",
                "-3ms",
                "1d",
                "",
                "5",
                "1us",
                "1µs",
                "1μs",
                "100000h",
                "+5s",
                ".5s",
                "1.s",
                "1h-1m",
                "s",
                "9223372036854775807ns",
                "9223372036854775808ns",
                "-9223372036854775808ns",
                "3000000h",
                "1e3s",
                " 1s",
            ])
            .to_owned();
    }
    some(
        choices,
        6,
        &[
            "1", "23", "0", ".", "h", "m", "s", "ms", "ns", "-", "1h", "2.5m", "w", "d",
        ],
    )
}

/// A version of Masterminds' semver, or nearly.
pub fn version(choices: &mut Choices<'_>) -> String {
    if choices.chance(10) {
        return words(choices);
    }
    let mut out = choices.pick(&["", "v", "", "V", " "]).to_owned();
    for part in 0..=choices.below(4) {
        if part > 0 {
            out.push('.');
        }
        out.push_str(choices.pick(&[
            "1",
            "0",
            "2",
            "10",
            "3",
            "01",
            "99999999999999999999",
            "x",
            "1a",
            "",
        ]));
    }
    if choices.chance(30) {
        out.push('-');
        out.push_str(choices.pick(&[
            "alpha", "beta.1", "rc.10", "0", "01", "a-b", "", "é", "1.a", "x.7.z.92",
        ]));
    }
    if choices.chance(20) {
        out.push('+');
        out.push_str(choices.pick(&["b1", "20130313144700", "a.b", "", "é", "exp.sha.5114f85"]));
    }
    out
}

/// A constraint on versions, or nearly.
pub fn constraint(choices: &mut Choices<'_>) -> String {
    let mut out = String::new();
    for group in 0..=choices.below(3) {
        if group > 0 {
            out.push_str(choices.pick(&[", ", " || ", " ", ",", "||", " | ", " - "]));
        }
        out.push_str(choices.pick(&[
            "", "=", "!=", ">", "<", ">=", "=>", "<=", "=<", "~", "~>", "^", "> ", "^ ", "!", "==",
        ]));
        match choices.chance(30) {
            true => out.push_str(choices.pick(&[
                "*", "x", "1.x", "1.2.*", "1.X.3", "1", "1.2", "*-0", "x.1", "",
            ])),
            false => out.push_str(&version(choices)),
        }
    }
    out
}

/// A pattern for names of files.
pub fn glob(choices: &mut Choices<'_>) -> String {
    some(
        choices,
        6,
        &[
            "*",
            "**",
            "?",
            "a",
            "b",
            "/",
            ".",
            "[ab]",
            "[a-c]",
            "[!a]",
            "[^a]",
            "{a,b}",
            "{a,b*}",
            "\\*",
            "\\",
            "[",
            "]",
            "{",
            "}",
            ",",
            "é",
            "a/b",
            "**/",
            "-",
            "{a,{b,c}}",
            "[]",
            "[a",
            "!",
        ],
    )
}

/// A path or URL.
pub(super) fn path(choices: &mut Choices<'_>) -> String {
    if choices.chance(40) {
        return some(
            choices,
            6,
            &[
                "/", "a", "b", "..", ".", "//", ".txt", "a.tar.gz", " ", "é", "-",
            ],
        );
    }
    let mut out = choices
        .pick(&[
            "http://", "https://", "", "mailto:", "//", "ftp:", "1x://", "HTTP://",
        ])
        .to_owned();
    out.push_str(choices.pick(&["", "u:p@", "u@", ":@", "u%20:p%zz@"]));
    out.push_str(choices.pick(&[
        "h",
        "example.com",
        "[::1]",
        "h:80",
        "h:x",
        "h:",
        "[::1",
        "é.de",
        "h h",
    ]));
    out.push_str(choices.pick(&[
        "",
        "/",
        "/p/a th",
        "/%41%zz",
        "/p%2Fq",
        "?q=1",
        "/p?q=a b&r=%20#f",
        "#f",
        "/;x=1",
        "/a:b",
    ]));
    out
}
