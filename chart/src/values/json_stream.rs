//! Errors of Go's `json.Decoder`, which reads values off a stream: where `json.Unmarshal` finds fault
//! with how a text ends, the decoder only says that it ended.

use golib::json;

/// The error in JSON text; `None` if it just ends too early.
pub(crate) fn error(text: &[u8]) -> Option<json::Error> {
    let error = json::decode(text).err()?;
    // A character that fits nowhere is only met by a reader that came to the end.
    let mut longer = text.to_vec();
    longer.push(1);
    let ended = json::decode(&longer).is_err_and(|error| error.to_string().contains(r"'\x01'"));
    (!ended).then_some(error)
}

#[cfg(test)]
mod tests {
    use super::error;

    #[test]
    fn only_wrong_characters_are_named() {
        for ended in ["{", "tru", "[1,", "\"a"] {
            assert!(error(ended.as_bytes()).is_none(), "{ended}");
        }
        let wrong = error(b"{b:1}").expect("a wrong character").to_string();
        assert_eq!(
            wrong,
            "invalid character 'b' looking for beginning of object key string"
        );
    }
}
