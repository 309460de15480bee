//! What a chart costs that a large repository lists: an index of 60 MiB, read as it comes over a connection of this machine.
//!
//! Nothing is asserted: the figures are for whoever started it. The server is in the same process, and its index counts from the start.
#![expect(clippy::print_stdout, reason = "the figures are for the person who started it")]

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chart::source::{Access, ChartRef, Fetcher, Settings};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::time::{ClockId, clock_gettime};

const INDEX_BYTES: usize = 60 << 20;
const RUNS: usize = 7;

/// An index as helm writes it, with the chart that is asked for in its middle.
fn index() -> String {
    let mut text = String::with_capacity(INDEX_BYTES + (64 << 10));
    text.push_str("apiVersion: v1\nentries:\n");
    let mut chart = 0;
    let mut has_web = false;
    while text.len() < INDEX_BYTES {
        if !has_web && text.len() > INDEX_BYTES / 2 {
            has_web = true;
            write_chart(&mut text, "web");
        }
        write_chart(&mut text, &format!("padding-{chart}"));
        chart += 1;
    }
    text.push_str("generated: \"2026-01-01T00:00:00Z\"\n");
    text
}

fn write_chart(text: &mut String, name: &str) {
    let words = "What this chart is good for, in many words. ".repeat(8);
    let _ = writeln!(text, "  {name}:");
    for version in (0..40).rev() {
        let _ = write!(
            text,
            "  - apiVersion: v2\n    appVersion: 1.{version}.0\n    created: \"2026-01-01T00:00:00Z\"\n    description: {words}\n    \
             home: https://charts.example/{name}\n    keywords:\n    - {name}\n    - example\n    maintainers:\n    - email: a@example\n      \
             name: a\n    name: {name}\n    urls:\n    - {name}-1.{version}.0.tgz\n    version: 1.{version}.0\n"
        );
    }
}

/// A server on a thread of its own; gives back its address.
fn serve(index: Bytes, archive: Bytes) -> Result<String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let url = format!("http://{}", listener.local_addr()?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || {
        runtime.block_on(async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
                return;
            };
            while let Ok((stream, _)) = listener.accept().await {
                let (index, archive) = (index.clone(), archive.clone());
                let answer = service_fn(move |request: Request<Incoming>| {
                    let body = match request.uri().path() {
                        "/index.yaml" => index.clone(),
                        _ => archive.clone(),
                    };
                    async move { Ok::<_, Infallible>(Response::new(Full::new(body))) }
                });
                tokio::spawn(async move {
                    let http = hyper::server::conn::http1::Builder::new();
                    // The client ends when the figures are there.
                    let _ = http.serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        });
    });
    Ok(url)
}

/// A line of what the kernel knows of this process, in KiB.
fn memory_kib(field: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|line| line.trim_matches([':', '\t', ' ']).split(' ').next());
    Ok(number.context("no such line")?.parse()?)
}

fn processor() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        used.tv_sec.unsigned_abs(),
        u32::try_from(used.tv_nsec).unwrap_or(0),
    )
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut archive = GzEncoder::new(Vec::new(), Compression::fast());
    archive.write_all(&[0; 10 << 10])?;
    let index = Bytes::from(index());
    let mebibytes = index.len() as f64 / f64::from(1 << 20);
    let url = serve(index, archive.finish()?.into())?;
    let web = |repo: String| ChartRef {
        repo,
        chart: "web".to_owned(),
        version: "~1.7".to_owned(),
    };
    let (mut elapsed, mut used) = (Vec::new(), Vec::new());
    // Forgets what the making of the index took.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before = memory_kib("VmRSS")?;
    for _ in 0..RUNS {
        // One that remembers nothing.
        let fetcher = Fetcher::new(Settings::default());
        let (started, processor_before) = (Instant::now(), processor());
        let fetched = fetcher.fetch(&web(url.clone()), &Access::default()).await?;
        elapsed.push(started.elapsed());
        used.push(processor() - processor_before);
        ensure!(fetched.version == "1.7.0", "{}", fetched.version);
    }
    let more = memory_kib("VmHWM")?.saturating_sub(before);
    let fastest = |times: &[Duration]| times.iter().min().map_or(0.0, Duration::as_secs_f64);
    println!("A chart of an index of {mebibytes:.0} MiB, of {RUNS} fetches the fastest");
    println!("time                     {:8.2} s", fastest(&elapsed));
    println!("processor, server's too  {:8.2} s", fastest(&used));
    println!("more memory at its peak  {:8.1} MiB", more as f64 / 1024.0);
    Ok(())
}
