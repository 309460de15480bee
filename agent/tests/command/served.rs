//! Repositories on the web: a proxy that answers for every host itself, with the files of a folder `<host>/<path>`.
//!
//! Through a proxy the addresses are the same in every run, and with them digests and error texts. `private.test` wants the login
//! `u` with password `p`; a host that is shown a login that is not for it says so.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

/// `u:p`.
const LOGIN: &str = "Basic dTpw";

/// Serves from now on, for as long as the process lives; gives the address.
pub(crate) fn serve(folder: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            let folder = folder.clone();
            // Who goes away in the middle does not want to know.
            std::thread::spawn(move || answer(stream, &folder).ok());
        }
    });
    format!("http://{address}")
}

fn answer(mut stream: TcpStream, folder: &Path) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let mut login = None;
    for line in lines {
        let line = line?;
        match line.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                login = Some(value.to_owned());
            }
            _ if line.is_empty() => break,
            _ => {}
        }
    }
    let address = request.split(' ').nth(1).unwrap_or_default();
    let place = address.trim_start_matches("http://");
    let place = place.split('?').next().unwrap_or_default();
    let is_private = place.starts_with("private.test/");
    let content = std::fs::read(folder.join(place));
    let (status, body) = match (login.as_deref(), is_private, content) {
        (Some(_), false, _) => ("403 Forbidden", Vec::new()),
        (login, true, _) if login != Some(LOGIN) => ("401 Unauthorized", Vec::new()),
        (_, _, Ok(content)) => ("200 OK", content),
        _ => ("404 Not Found", Vec::new()),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)
}
