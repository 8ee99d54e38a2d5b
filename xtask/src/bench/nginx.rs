//! The yardstick of the refusals: a private nginx that gives the same answer from its
//! configuration.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::answer::Answer;
use super::process::{Running, SERVER_CORE, free_address, pinned};

/// Headers that nginx writes itself.
const ITS_OWN: [&str; 4] = ["date", "content-type", "content-length", "connection"];

/// A running nginx with one worker.
pub(crate) struct Nginx {
    pub(crate) process: Running,
    pub(crate) address: SocketAddr,
}

impl Nginx {
    /// Starts one that answers everything with `answer`, on one core if `pin`.
    ///
    /// # Errors
    /// It cannot be started, or answers something else.
    pub(crate) fn start(folder: &Path, answer: &Answer, pin: bool) -> Result<Self> {
        let address = free_address()?;
        let folder = folder.join(format!("nginx-{}", address.port()));
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join("nginx.conf"), configuration(address, answer)?)?;
        let mut command = if pin { pinned(SERVER_CORE, "nginx") } else { Command::new("nginx") };
        command.arg("-p").arg(&folder).arg("-c").arg(folder.join("nginx.conf")).args(["-e", "stderr"]);
        let log = folder.join("log");
        let mut process = Running::start(&mut command, &log)?;
        process.listens(address, &log)?;
        let same = Answer::ask(address, "/", "none").context("asking nginx")?;
        ensure!(
            (same.status, &same.body) == (answer.status, &answer.body),
            "nginx does not answer as we do: {same:?}"
        );
        Ok(Self { process, address })
    }
}

fn configuration(address: SocketAddr, answer: &Answer) -> Result<String> {
    let quoted = |text: &str| {
        ensure!(!text.contains(['\'', '\\', '$']), "nginx's configuration cannot say {text}");
        Ok(format!("'{text}'"))
    };
    let mut headers = String::new();
    for (name, value) in &answer.headers {
        if !ITS_OWN.contains(&name.as_str()) {
            writeln!(headers, "add_header {name} {} always;", quoted(value)?)?;
        }
    }
    let kind = answer.header("content-type").context("the answer has no content type")?;
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {kind};\n"))
        .collect();
    Ok(format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid nginx.pid;\n\
         events {{ worker_connections 15000; }}\n\
         http {{\naccess_log off;\nserver_tokens off;\nkeepalive_requests 10000000;\n\
         keepalive_timeout 600s;\ndefault_type {kind};\n{temporary}\
         server {{\nlisten {address} backlog=4096;\n\
         location / {{\n{headers}return {} {};\n}}\n}}\n}}\n",
        answer.status,
        quoted(&answer.body)?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_repeats_body_and_headers() {
        let answer = Answer::parse(
            "HTTP/1.1 410 Gone\r\nContent-Type: a/b\r\nDate: now\r\nX-Request-Id: 7\r\n\r\n{\"a\":1}",
        );
        let text =
            configuration(([127, 0, 0, 1], 81).into(), &answer.expect("is an answer")).expect("can be said");
        for wanted in ["default_type a/b;", "add_header x-request-id '7' always;", "return 410 '{\"a\":1}';"]
        {
            assert!(text.contains(wanted), "{text}");
        }
        assert!(!text.contains("now"), "{text}");
    }
}
