//! The figures of client_golang's process collector, from `/proc`. Where it is not to be had they are left out.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// The kernel tells user space times in these, on every architecture there is.
const TICKS_PER_SECOND: f64 = 100.0;
const PAGE: u64 = 4096;

/// What the process uses at this moment.
struct Usage {
    cpu_seconds: f64,
    start_seconds: f64,
    virtual_bytes: u64,
    resident_bytes: u64,
    open_files: u64,
}

pub(super) fn register(registry: &mut Registry) {
    let Some(usage) = Usage::read() else { return };
    let integer = |value: u64| {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        gauge
    };
    let cpu = Counter::<f64, AtomicU64>::default();
    cpu.inc_by(usage.cpu_seconds);
    let start = Gauge::<f64, AtomicU64>::default();
    start.set(usage.start_seconds);
    register!(registry,
        "process_cpu", "Time on a CPU" in Seconds => cpu,
        "process_start_time", "When the process began, since 1970" in Seconds => start,
        "process_virtual_memory", "Address space" in Bytes => integer(usage.virtual_bytes),
        "process_resident_memory", "Resident memory" in Bytes => integer(usage.resident_bytes),
        "process_open_fds", "Open file descriptors" => integer(usage.open_files),
    );
}

impl Usage {
    fn read() -> Option<Self> {
        let of_process = std::fs::read_to_string("/proc/self/stat").ok()?;
        let of_machine = std::fs::read_to_string("/proc/stat").ok()?;
        let open_files = std::fs::read_dir("/proc/self/fd").ok()?.count();
        Self::parse(&of_process, &of_machine, u64::try_from(open_files).ok()?)
    }

    fn parse(of_process: &str, of_machine: &str, open_files: u64) -> Option<Self> {
        // The name before may hold anything, blanks and brackets too.
        let (_, fields) = of_process.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // Numbered as in proc_pid_stat(5), where the state after the name is the third.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let count = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let boot = of_machine
            .lines()
            .find_map(|line| line.strip_prefix("btime "))?;
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / TICKS_PER_SECOND,
            start_seconds: boot.trim().parse::<f64>().ok()? + field(22)? / TICKS_PER_SECOND,
            virtual_bytes: count(23)?,
            resident_bytes: count(24)?.saturating_mul(PAGE),
            open_files,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let of_process = "42 (a (b) c) S 1 42 42 0 -1 4194560 6026 0 11 0 150 50 0 0 20 0 4 0 3000 8192000 250 0";
        let usage = Usage::parse(of_process, "cpu 1 2\nbtime 1700000000\n", 7).unwrap();
        assert_eq!(
            (usage.cpu_seconds, usage.start_seconds),
            (2.0, 1_700_000_030.0)
        );
        assert_eq!(
            (usage.virtual_bytes, usage.resident_bytes, usage.open_files),
            (8_192_000, 250 * PAGE, 7)
        );
        assert!(Usage::read().is_some_and(|usage| usage.resident_bytes > 0));
    }
}
