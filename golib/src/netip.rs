//! IP addresses as Go's `net/netip` reads them.
//!
//! The standard library reads the same addresses; ours is for those it refuses, and for the zones that it does not know.
//!
//! ```
//! assert!(golib::netip::parse_addr(b"fe80::1%en0")?.has_zone);
//! let why = golib::netip::parse_addr(b"1.2.3").unwrap_err();
//! assert_eq!(why, r#"ParseAddr("1.2.3"): IPv4 address too short"#);
//! # Ok::<(), String>(())
//! ```

use crate::strconv::quote;

/// What Go's `netip.Addr` says of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addr {
    /// `Is4`: it was written as IPv4.
    pub is_v4: bool,
    /// Whether it ends with a zone, as `fe80::1%en0` does.
    pub has_zone: bool,
}

/// Go's `netip.ParseAddr`.
///
/// # Errors
/// Why the text is no address, in Go's words.
pub fn parse_addr(text: &[u8]) -> Result<Addr, String> {
    let failed = |(why, at): AddressError<'_>| {
        let at = if at.is_empty() {
            String::new()
        } else {
            format!(" (at {})", quote(at))
        };
        format!("ParseAddr({}): {why}{at}", quote(text))
    };
    let is_v4 = match text.iter().find(|byte| b".:%".contains(byte)) {
        Some(b'.') => true,
        Some(b':') => false,
        Some(_) => return Err(failed(("missing IPv6 address", b""))),
        None => return Err(failed(("unable to parse IP", b""))),
    };
    let zone = text.iter().position(|&byte| byte == b'%' && !is_v4);
    let fields = match zone {
        _ if is_v4 => ipv4_fields(text),
        Some(at) if at + 1 == text.len() => Err(("zone must be a non-empty string", &b""[..])),
        Some(at) => ipv6_fields(&text[..at]),
        None => ipv6_fields(text),
    };
    let has_zone = zone.is_some();
    fields.map_err(failed)?;
    Ok(Addr { is_v4, has_zone })
}

/// What is wrong, and where.
type AddressError<'t> = (&'static str, &'t [u8]);

fn ipv6_fields(text: &[u8]) -> Result<(), AddressError<'_>> {
    let mut rest = text;
    let mut ellipsis = None;
    let mut bytes = 0;
    if let Some(after) = rest.strip_prefix(b"::") {
        ellipsis = Some(0);
        rest = after;
        if rest.is_empty() {
            return Ok(());
        }
    }
    while bytes < 16 {
        let digits = rest
            .iter()
            .take_while(|byte| byte.is_ascii_hexdigit())
            .count();
        if digits > 4 {
            return Err(("each group must have 4 or less digits", rest));
        }
        if digits == 0 {
            return Err((
                "each colon-separated field must have at least one digit",
                rest,
            ));
        }
        if rest.get(digits) == Some(&b'.') {
            if ellipsis.is_none() && bytes != 12 {
                let why = "embedded IPv4 address must replace the final 2 fields of the address";
                return Err((why, rest));
            }
            if bytes + 4 > 16 {
                let why = "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Err((why, rest));
            }
            ipv4_fields(rest)?;
            rest = b"";
            bytes += 4;
            break;
        }
        bytes += 2;
        rest = &rest[digits..];
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(b":") else {
            return Err(("unexpected character, want colon", rest));
        };
        if after.is_empty() {
            return Err(("colon must be followed by more characters", rest));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(b":") {
            if ellipsis.is_some() {
                return Err(("multiple :: in address", rest));
            }
            ellipsis = Some(bytes);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(("trailing garbage after address", rest));
    }
    match ellipsis {
        None if bytes < 16 => Err(("address string too short", b"")),
        Some(_) if bytes == 16 => Err(("the :: must expand to at least one field of zeros", b"")),
        _ => Ok(()),
    }
}

fn ipv4_fields(text: &[u8]) -> Result<(), AddressError<'_>> {
    let (mut value, mut digits, mut fields) = (0_u32, 0, 0);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Err(("IPv4 field has octet with leading zero", b""));
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return Err(("IPv4 field has value >255", b""));
                }
            }
            b'.' => {
                if at == 0 || at == text.len() - 1 || text[at - 1] == b'.' {
                    return Err(("IPv4 field must have at least one digit", &text[at..]));
                }
                if fields == 3 {
                    return Err(("IPv4 address too long", b""));
                }
                fields += 1;
                (value, digits) = (0, 0);
            }
            _ => return Err(("unexpected character", &text[at..])),
        }
    }
    if fields < 3 {
        Err(("IPv4 address too short", b""))
    } else {
        Ok(())
    }
}
