//! Scanning directives, anchors, aliases and tags.

use super::error::Problem;
use super::scanner::{Scanner, text};
use super::token::{Kind, Mark};

impl<'a> Scanner<'a> {
    pub(super) fn scan_directive(&mut self) -> Result<Kind<'a>, Problem> {
        let start = self.mark;
        self.skip();
        let mut name = Vec::new();
        while self.is_word() {
            self.read(&mut name);
        }
        if name.is_empty() {
            return Err(self.problem("could not find expected directive name", start));
        }
        if !self.is_blank_or_end(0) {
            return Err(self.problem("found unexpected non-alphabetical character", start));
        }
        let kind = match name.as_slice() {
            b"YAML" => self.scan_version(start)?,
            b"TAG" => self.scan_tag_directive(start)?,
            _ => return Err(self.problem("found unknown directive name", start)),
        };
        self.end_line(start)?;
        Ok(kind)
    }

    /// Nothing but a comment may follow.
    pub(super) fn end_line(&mut self, start: Mark) -> Result<(), Problem> {
        self.skip_blanks();
        self.skip_comment();
        if !self.is_break_or_end(0) {
            return Err(self.problem("did not find expected comment or line break", start));
        }
        self.skip_line();
        Ok(())
    }

    fn scan_version(&mut self, start: Mark) -> Result<Kind<'a>, Problem> {
        self.skip_blanks();
        let major = self.scan_version_number(start)?;
        if self.byte(0) != b'.' {
            return Err(self.problem("did not find expected digit or '.' character", start));
        }
        self.skip();
        let minor = self.scan_version_number(start)?;
        Ok(Kind::VersionDirective { major, minor })
    }

    fn scan_version_number(&mut self, start: Mark) -> Result<u8, Problem> {
        let mut value = None;
        let mut length = 0;
        while self.byte(0).is_ascii_digit() {
            length += 1;
            if length > 2 {
                return Err(self.problem("found extremely long version number", start));
            }
            value = Some(value.unwrap_or(0) * 10 + (self.byte(0) - b'0'));
            self.skip();
        }
        value.ok_or_else(|| self.problem("did not find expected version number", start))
    }

    fn scan_tag_directive(&mut self, start: Mark) -> Result<Kind<'a>, Problem> {
        self.skip_blanks();
        let handle = self.scan_tag_handle(true, start)?;
        if !self.is_blank(0) {
            return Err(self.problem("did not find expected whitespace", start));
        }
        self.skip_blanks();
        let prefix = self.scan_tag_uri(&[], start)?;
        if !self.is_blank_or_end(0) {
            return Err(self.problem("did not find expected whitespace or line break", start));
        }
        Ok(Kind::TagDirective {
            handle: text(handle),
            prefix: text(prefix),
        })
    }

    pub(super) fn scan_anchor(&mut self) -> Result<Kind<'a>, Problem> {
        let start = self.mark;
        let alias = self.byte(0) == b'*';
        self.skip();
        let from = self.at;
        while self.is_word() {
            self.skip_ascii();
        }
        let name = &self.text[from..self.at];
        let delimited = self.is_blank_or_end(0)
            || matches!(
                self.byte(0),
                b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`'
            );
        if name.is_empty() || !delimited {
            let text = "did not find expected alphabetic or numeric character";
            return Err(self.problem(text, start));
        }
        let name = String::from_utf8_lossy(name);
        Ok(if alias {
            Kind::Alias(name)
        } else {
            Kind::Anchor(name)
        })
    }

    pub(super) fn scan_tag(&mut self) -> Result<Kind<'a>, Problem> {
        let start = self.mark;
        let mut handle = Vec::new();
        let mut suffix;
        if self.byte(1) == b'<' {
            self.skip();
            self.skip();
            suffix = self.scan_tag_uri(&[], start)?;
            if self.byte(0) != b'>' {
                return Err(self.problem("did not find the expected '>'", start));
            }
            self.skip();
        } else {
            handle = self.scan_tag_handle(false, start)?;
            if handle.len() > 1 && handle.ends_with(b"!") {
                suffix = self.scan_tag_uri(&[], start)?;
            } else {
                suffix = self.scan_tag_uri(&handle, start)?;
                handle = b"!".to_vec();
                if suffix.is_empty() {
                    std::mem::swap(&mut handle, &mut suffix); // the tag `!` alone
                }
            }
        }
        if !self.is_blank_or_end(0) {
            return Err(self.problem("did not find expected whitespace or line break", start));
        }
        Ok(Kind::Tag {
            handle: text(handle),
            suffix: text(suffix),
        })
    }

    fn scan_tag_handle(&mut self, directive: bool, start: Mark) -> Result<Vec<u8>, Problem> {
        if self.byte(0) != b'!' {
            return Err(self.problem("did not find expected '!'", start));
        }
        let mut handle = Vec::new();
        self.read(&mut handle);
        while self.is_word() {
            self.read(&mut handle);
        }
        if self.byte(0) == b'!' {
            self.read(&mut handle);
        } else if directive && handle != b"!" {
            return Err(self.problem("did not find expected '!'", start));
        }
        Ok(handle)
    }

    /// `head` was taken as a handle but belongs to the tag, except for its `!`.
    fn scan_tag_uri(&mut self, head: &[u8], start: Mark) -> Result<Vec<u8>, Problem> {
        let mut uri = head.get(1..).unwrap_or_default().to_vec();
        let mut found = !head.is_empty();
        loop {
            match self.byte(0) {
                b'%' => self.scan_uri_escape(&mut uri, start)?,
                b';' | b'/' | b'?' | b':' | b'@' | b'&' | b'=' | b'+' | b'$' | b',' | b'.'
                | b'!' | b'~' | b'*' | b'\'' | b'(' | b')' | b'[' | b']' => self.read(&mut uri),
                _ if self.is_word() => self.read(&mut uri),
                _ if found => return Ok(uri),
                _ => return Err(self.problem("did not find expected tag URI", start)),
            }
            found = true;
        }
    }

    /// The `%xx` escapes of one UTF-8 character.
    fn scan_uri_escape(&mut self, uri: &mut Vec<u8>, start: Mark) -> Result<(), Problem> {
        let mut remaining = None;
        while remaining != Some(0) {
            let digit = |offset| char::from(self.byte(offset)).to_digit(16);
            let (b'%', Some(high), Some(low)) = (self.byte(0), digit(1), digit(2)) else {
                return Err(self.problem("did not find URI escaped octet", start));
            };
            let octet = u8::try_from(high << 4 | low).unwrap_or(u8::MAX);
            remaining = Some(match (remaining, octet) {
                (None, 0..0x80) => 0,
                (None, 0xc0..0xe0) => 1,
                (None, 0xe0..0xf0) => 2,
                (None, 0xf0..0xf8) => 3,
                (None, _) => {
                    return Err(self.problem("found an incorrect leading UTF-8 octet", start));
                }
                (Some(count), 0x80..0xc0) => count - 1,
                (Some(_), _) => {
                    return Err(self.problem("found an incorrect trailing UTF-8 octet", start));
                }
            });
            uri.push(octet);
            for _ in 0..3 {
                self.skip();
            }
        }
        Ok(())
    }
}
