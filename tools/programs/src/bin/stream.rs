//! One stream of the preflight by itself; `cargo xtask bench preflight` runs it beside `iperf3`.
//!
//! `stream receive ADDRESS SECONDS` listens, takes one stream and prints its bits in a second;
//! `stream send ADDRESS SECONDS` sends it.
#![expect(clippy::print_stdout, reason = "the figure is the program's output")]

use std::{
    error::Error,
    net::{TcpListener, TcpStream},
    time::Duration,
};

use trainyard_probe::path::{receive, send};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [command, address, seconds] = words.as_slice() else {
        return Err("needs `receive` or `send`, an address and seconds".into());
    };
    let measure = Duration::from_secs(seconds.parse()?);
    if command == "receive" {
        let listener = TcpListener::bind(address)?;
        println!("listening");
        let (stream, _) = listener.accept()?;
        println!("{:.0}", receive(&stream, measure)?.rate());
    } else {
        send(
            &TcpStream::connect(address)?,
            measure,
            Duration::from_secs(5),
        )?;
    }
    Ok(())
}
