//! Unicode's properties by Go's names.

use super::input::{before, check_utf8, expect_char, fail};
use crate::regexp::error::{Error, ErrorCode};
use crate::regexp::unicode_version::KNOWN;

/// `\pL`, `\p{Greek}`, `\P{^Lu}`.
pub(super) fn unicode_class(text: &[u8]) -> Result<Option<(String, &[u8])>, Error> {
    let mut negated = match text.get(..2) {
        Some(br"\p") => false,
        Some(br"\P") => true,
        _ => return Ok(None),
    };
    let (c, after) = expect_char(&text[2..])?;
    let (sequence, name, rest) = if c == '{' {
        let Some(end) = text.iter().position(|&b| b == b'}') else {
            check_utf8(text)?;
            return fail(ErrorCode::InvalidCharRange, text);
        };
        (&text[..=end], check_utf8(&text[3..end])?, &text[end + 1..])
    } else {
        let sequence = before(text, after);
        (sequence, check_utf8(&sequence[2..])?, after)
    };
    let name = match name.strip_prefix('^') {
        Some(name) => {
            negated = !negated;
            name
        }
        None => name,
    };
    let Some(class) = unicode_property(&canonical_name(name)) else {
        return fail(ErrorCode::InvalidCharRange, sequence);
    };
    let negation = if negated { "^" } else { "" };
    Ok(Some((format!("[{negation}{class}]"), rest)))
}

/// A capital first and no separators, as Go spells the names it looks up.
fn canonical_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')) {
        out.push(if out.is_empty() {
            c.to_ascii_uppercase()
        } else {
            c.to_ascii_lowercase()
        });
    }
    out
}

/// The members that Go knows.
fn unicode_property(name: &str) -> Option<String> {
    let class = match name {
        "Any" => r"\x{0}-\x{10FFFF}".to_owned(),
        "Ascii" => r"\x00-\x7F".to_owned(),
        // Surrogates are no characters here; a class needs a member to be a class.
        "Cs" | "Surrogate" => r"&&[^\x{0}-\x{10FFFF}]".to_owned(),
        "Assigned" => format!(r"\P{{Cn}}{KNOWN}"),
        // What came later is not assigned.
        "C" | "Cn" | "Other" | "Unassigned" => format!(r"\p{{gc={name}}}\P{{age=15.0}}"),
        name if CATEGORIES.contains(&name) => format!(r"\p{{gc={name}}}{KNOWN}"),
        name if SCRIPTS.contains(&name) => format!(r"\p{{sc={name}}}{KNOWN}"),
        _ => return None,
    };
    Some(class)
}

/// Unicode's general categories by their short and long names.
#[rustfmt::skip]
const CATEGORIES: &[&str] = &[
    "C", "Cc", "Cf", "Cn", "Co", "L", "Lc", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No",
    "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs", "Casedletter",
    "Closepunctuation", "Combiningmark", "Connectorpunctuation", "Control", "Currencysymbol", "Dashpunctuation",
    "Decimalnumber", "Enclosingmark", "Finalpunctuation", "Format", "Initialpunctuation", "Letter", "Letternumber",
    "Lineseparator", "Lowercaseletter", "Mark", "Mathsymbol", "Modifierletter", "Modifiersymbol", "Nonspacingmark",
    "Number", "Openpunctuation", "Other", "Otherletter", "Othernumber", "Otherpunctuation", "Othersymbol",
    "Paragraphseparator", "Privateuse", "Punctuation", "Separator", "Spaceseparator", "Spacingmark", "Symbol",
    "Titlecaseletter", "Unassigned", "Uppercaseletter", "Cntrl", "Digit", "Punct",
];

/// The scripts Go finds: those of one word. (It drops the separators of `\p{Old_Italic}` and then
/// knows no script `Olditalic`.)
#[rustfmt::skip]
const SCRIPTS: &[&str] = &[
    "Adlam", "Ahom", "Arabic", "Armenian", "Avestan", "Balinese", "Bamum", "Batak", "Bengali", "Bhaiksuki", "Bopomofo",
    "Brahmi", "Braille", "Buginese", "Buhid", "Carian", "Chakma", "Cham", "Cherokee", "Chorasmian", "Common", "Coptic",
    "Cuneiform", "Cypriot", "Cyrillic", "Deseret", "Devanagari", "Dogra", "Duployan", "Elbasan", "Elymaic", "Ethiopic",
    "Georgian", "Glagolitic", "Gothic", "Grantha", "Greek", "Gujarati", "Gurmukhi", "Han", "Hangul", "Hanunoo",
    "Hatran", "Hebrew", "Hiragana", "Inherited", "Javanese", "Kaithi", "Kannada", "Katakana", "Kawi", "Kharoshthi",
    "Khmer", "Khojki", "Khudawadi", "Lao", "Latin", "Lepcha", "Limbu", "Lisu", "Lycian", "Lydian", "Mahajani",
    "Makasar", "Malayalam", "Mandaic", "Manichaean", "Marchen", "Medefaidrin", "Miao", "Modi", "Mongolian", "Mro",
    "Multani", "Myanmar", "Nabataean", "Nandinagari", "Newa", "Nko", "Nushu", "Ogham", "Oriya", "Osage", "Osmanya",
    "Palmyrene", "Phoenician", "Rejang", "Runic", "Samaritan", "Saurashtra", "Sharada", "Shavian", "Siddham", "Sinhala",
    "Sogdian", "Soyombo", "Sundanese", "Syriac", "Tagalog", "Tagbanwa", "Takri", "Tamil", "Tangsa", "Tangut", "Telugu",
    "Thaana", "Thai", "Tibetan", "Tifinagh", "Tirhuta", "Toto", "Ugaritic", "Vai", "Vithkuqi", "Wancho", "Yezidi", "Yi",
];
