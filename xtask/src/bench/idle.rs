//! Row 7: memory per idle connection, as the slope between 1,000 and 9,000 of them.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};
use socket2::{Domain, Socket, Type};

use super::Bench;
use super::answer::Answer;
use super::figure::{Books, Figure, Goal};
use super::nginx::Nginx;
use super::process::{Running, pause};
use super::shop::Shop;

const FEW: u32 = 1_000;
const MANY: u32 = 9_000;
/// Long enough for a server to have done what it does after an answer.
const REST: Duration = Duration::from_millis(300);

pub(crate) fn run(bench: &Bench) -> Result<Vec<Figure>> {
    let mut rounds = Vec::new();
    for round in 0..bench.rounds() {
        bench.say(format!("row 7, round {}: {MANY} idle connections to both", round + 1));
        // Fresh servers every round: memory that was used once is not given back.
        let shop = Shop::start(bench, true)?;
        let (sale, answer) = shop.sold_out_sale(100)?;
        let token = shop.token("idle")?;
        let nginx = Nginx::start(bench.folder(), &answer, true)?;
        let ours = slope(&shop.process, shop.address, &sale.paths[0], &token)?;
        let theirs = slope(&nginx.process, nginx.address, &sale.paths[0], &token)?;
        rounds.push((ours, Some(theirs)));
    }
    Ok(vec![Figure {
        row: "7",
        what: "memory per idle keep-alive connection",
        unit: "KB",
        against: "nginx",
        goal: Goal::AtMost(16.0),
        rounds,
        books: Books::Unasked,
        notes: vec!["every connection has had one answer before it idles".to_owned()],
    }])
}

fn slope(process: &Running, address: SocketAddr, path: &str, token: &str) -> Result<f64> {
    let mut open = Vec::new();
    let mut memory = Vec::new();
    for until in [FEW, MANY] {
        for number in (0..until).skip(open.len()) {
            let mut stream = connect(number, address)
                .with_context(|| format!("connection {number}; `ulimit -n` must allow {MANY} and some"))?;
            Answer::ask_over(&mut stream, path, token)?;
            open.push(stream);
        }
        pause(REST);
        memory.push(process.resident_kb()?);
    }
    Ok((memory[1] - memory[0]) / f64::from(MANY - FEW))
}

/// A connection from a loopback address of its own, so that neither ports nor limits per address
/// run out.
fn connect(number: u32, address: SocketAddr) -> std::io::Result<TcpStream> {
    let source = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 2, 0, 1)) + number);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    socket.connect(&address.into())?;
    Ok(socket.into())
}
