//! Sprig's `network.go`: names to addresses, if the host of the render allows it.

use super::crypto;
use super::functions::Functions;
use crate::error::Error;
use crate::state::State;
use crate::value::Str;

pub(super) fn add(f: &mut Functions) {
    f.add(
        "getHostByName",
        |state: &mut State<'_>, name: Str| -> Result<String, Error> {
            state.host().check()?;
            let Some(addresses) = state.host().resolve(&name.to_str_lossy()) else {
                return Ok(String::new());
            };
            let addresses = addresses?;
            if addresses.is_empty() {
                return Err(Error::message("invalid argument to Intn"));
            }
            let chosen = crypto::random_below(state.host(), addresses.len() as u64);
            Ok(addresses[chosen as usize].to_string())
        },
    );
}
