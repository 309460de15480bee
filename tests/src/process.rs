//! Server processes that never outlive the program that started them.
//!
//! All processes of a bed join one process group. A watchdog shell holds the reading end of a pipe of ours; when we end, by
//! whatever way (panic, kill -9, a forgotten drop in a static), the pipe closes and the watchdog ends the group and removes the
//! directory. No `unsafe`, no signal handlers.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A process group with its directory, both gone when this program ends.
#[derive(Debug)]
pub struct ProcessGroup {
    /// Leads the group so that its id stays taken while servers come and go.
    leader: Child,
    watchdog: Child,
    directory: PathBuf,
}

impl ProcessGroup {
    /// A new group whose files live in `directory`. With `keep` the directory stays behind for inspection.
    ///
    /// # Errors
    /// When the directory or the two helper processes cannot be made.
    pub fn new(directory: &Path, keep: bool) -> Result<Self> {
        std::fs::create_dir_all(directory).with_context(|| format!("creating {directory:?}"))?;
        let leader = Command::new("tail")
            .args(["-f", "/dev/null"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("starting the leader of the process group")?;
        let remove = if keep { ":" } else { "rm -rf -- \"$2\"" };
        let script = format!("cat >/dev/null; kill -s KILL -- \"-$1\"; {remove}");
        let watchdog = Command::new("sh")
            .args(["-c", &script, "watchdog", &leader.id().to_string()])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("starting the watchdog")?;
        Ok(Self {
            leader,
            watchdog,
            directory: directory.to_owned(),
        })
    }

    /// Where the group's files are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Starts a program in this group; its output goes to `<name>.log` in the group's directory, appended.
    ///
    /// # Errors
    /// When the log or the program cannot be opened.
    pub fn spawn(&self, name: &str, command: &mut Command) -> Result<Process> {
        let log = self.directory.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(i32::try_from(self.leader.id())?)
            .spawn()
            .with_context(|| format!("starting {name} ({:?})", command.get_program()))?;
        Ok(Process {
            name: name.to_owned(),
            child,
            log,
        })
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
        let _ = self.leader.kill();
        let _ = self.leader.wait();
    }
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The file its output goes to.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The end of its output, for failure messages.
    pub fn log_tail(&self, lines: usize) -> String {
        let text =
            String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// How it ended, if it did.
    ///
    /// # Errors
    /// When the system will not say.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Fails with the end of the log if the process is gone.
    ///
    /// # Errors
    /// When the process ended.
    pub fn ensure_running(&mut self) -> Result<()> {
        match self.exit_status()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}):\n{}", self.name, self.log_tail(20)),
        }
    }

    /// Asks it to end (SIGTERM) and waits for it.
    ///
    /// # Errors
    /// When it is still there after `deadline`.
    pub fn terminate(&mut self, deadline: Duration) -> Result<ExitStatus> {
        signal("-TERM", self.id())?;
        self.wait_exit(deadline)
    }

    /// Waits for it to end by itself.
    ///
    /// # Errors
    /// When it is still there after `deadline`.
    pub fn wait_exit(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.exit_status()? {
                return Ok(status);
            }
            if started.elapsed() > deadline {
                bail!(
                    "{} still runs after {deadline:?}:\n{}",
                    self.name,
                    self.log_tail(20)
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops it where it is (SIGSTOP), as a machine does that is suspended.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn freeze(&self) -> Result<()> {
        signal("-STOP", self.id())
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// When the process is gone.
    pub fn thaw(&self) -> Result<()> {
        signal("-CONT", self.id())
    }

    /// Ends it at once (SIGKILL) and reaps it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Resident memory now and at its highest, in KiB, as the kernel counts them.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn memory_kib(&self) -> Result<Memory> {
        let path = format!("/proc/{}/status", self.id());
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let field = |name: &str| -> Result<u64> {
            text.lines()
                .find_map(|line| {
                    line.strip_prefix(name)?
                        .split_whitespace()
                        .next()?
                        .parse()
                        .ok()
                })
                .with_context(|| format!("no {name} in {path}"))
        };
        Ok(Memory {
            now: field("VmRSS:")?,
            peak: field("VmHWM:")?,
            code: field("RssFile:")?,
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Resident memory in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// At this moment.
    pub now: u64,
    /// The highest since the start.
    pub peak: u64,
    /// Of what is there now, pages of the program itself: several times as many in a debug build as in a released one.
    pub code: u64,
}

impl Memory {
    /// The highest since the start without the program itself.
    pub fn peak_of_data(self) -> u64 {
        self.peak.saturating_sub(self.code)
    }
}

/// Sends a signal by the `kill` program: the standard library has none but SIGKILL.
fn signal(signal: &str, id: u32) -> Result<()> {
    let status = Command::new("kill")
        .arg(signal)
        .arg(id.to_string())
        .status()?;
    if !status.success() {
        bail!("kill {signal} {id} failed ({status})");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_process_outlives_its_group() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let group = ProcessGroup::new(&directory.path().join("group"), false)?;
        let mut server = group.spawn("server", Command::new("sleep").arg("1000"))?;
        server.ensure_running()?;
        let files = group.directory().to_owned();
        drop(group);
        assert!(!server.wait_exit(Duration::from_secs(5))?.success());
        assert!(!files.exists());
        Ok(())
    }
}
