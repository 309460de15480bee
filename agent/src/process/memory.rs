//! How much memory all work at once may take, and giving it back to the system after a burst.
//!
//! The agent is to stay below 128 MiB. It rests at some 20, remembers charts, indexes and templates for 36 at most,
//! and work reserves of the rest.

use chart::source::{Memory, Settings};

use crate::bundle::MAX_UNPACKED_BYTES;

/// Memory for all downloads, deploys and monitoring under way, in bytes, by estimate.
const WORK: u64 = 48 << 20;

/// The part of it for monitoring alone, so that no download and no template keeps it waiting.
const LOOKS: u64 = 6 << 20;

/// The largest archive that is taken. One that large is worked on alone; large indexes are read as they come.
const MAX_ARCHIVE: u64 = 32 << 20;

/// Settings of downloads within these bounds.
pub fn bounded(settings: Settings) -> Settings {
    Settings {
        memory: Memory::new(WORK).with_reserve(LOOKS).on_release(give_back),
        max_archive_bytes: MAX_ARCHIVE,
        // One more says that it is too much.
        max_unpacked_bytes: MAX_UNPACKED_BYTES + 1,
        ..settings
    }
}

/// Returns free heap pages to the system. glibc keeps what a burst of rendering used (measured:
/// 57 MB against 6 MB after this call); other C libraries return it by themselves.
#[expect(unsafe_code, reason = "malloc_trim has no safe wrapper; it takes no pointers")]
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> i32;
        }
        // SAFETY: malloc_trim may be called at any time from any thread and only touches free
        // memory of the allocator itself.
        unsafe {
            malloc_trim(0);
        }
    }
}
