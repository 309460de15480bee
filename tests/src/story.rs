//! What a demo tells the person who started it.
#![expect(clippy::print_stdout, reason = "it is told on the terminal")]

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::bed::keep;
use crate::cluster::{ADMIN, ControlPlane};

/// Numbered steps with what happened in them and how long they took.
pub struct Story {
    started: Instant,
    step_started: Instant,
    steps: usize,
    colour: bool,
}

impl Story {
    /// A story that begins now.
    #[expect(clippy::new_without_default, reason = "it begins now, which is no default")]
    pub fn new() -> Self {
        use std::io::IsTerminal;
        let now = Instant::now();
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self {
            started: now,
            step_started: now,
            steps: 0,
            colour,
        }
    }

    /// Begins the next step, with its title.
    pub fn step(&mut self, title: &str) {
        self.steps += 1;
        self.step_started = Instant::now();
        println!("\n{}", self.paint("1", &format!("{}. {title}", self.steps)));
    }

    /// Tells a line of it.
    pub fn say(&self, line: &str) {
        println!("   {line}");
    }

    /// Ends the step and tells how long it took.
    pub fn done(&self) {
        let took = self.step_started.elapsed().as_secs_f64();
        println!(
            "   {} {}",
            self.paint("32", "done"),
            self.paint("2", &format!("({took:.1} s)"))
        );
    }

    /// The time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The time since the step began.
    pub fn in_step(&self) -> Duration {
        self.step_started.elapsed()
    }

    /// Where `KEEP=1` is set keeps everything until Ctrl-C, and tells how to come to it: `way`, then the kubeconfig of each cluster.
    ///
    /// # Errors
    /// When a kubeconfig cannot be written, or Ctrl-C not be waited for.
    pub async fn keeps(&self, way: &[&str], clusters: &[&ControlPlane]) -> Result<()> {
        if !keep() {
            return Ok(());
        }
        self.say("");
        self.say("Everything keeps running until Ctrl-C:");
        for line in way {
            self.say(line);
        }
        for cluster in clusters {
            let kubeconfig = cluster.kubeconfig(ADMIN)?;
            self.say(&format!("export KUBECONFIG={}", kubeconfig.display()));
        }
        Ok(tokio::signal::ctrl_c().await?)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
