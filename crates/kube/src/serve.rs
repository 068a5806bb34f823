//! The HTTP servers of the operator, plain for metrics and health, TLS for webhooks: those of `trainyard_serve`, with bodies whose
//! values are counted by `trainyard_core`.

#[cfg(test)]
mod tests;

use trainyard_core::spec::count::{Counter, Values};
pub(crate) use trainyard_serve::{
    Admit, Answer, Bounds, Head, Intake, Meter, Phase, Place, Reply, ReplyRules, Request, Room,
    Secure, Server, Size, Traffic, serve,
};
pub use trainyard_serve::{Bind, BindError};

/// Counts the values of a body of JSON that will be parsed.
pub(crate) fn counted(values: Values) -> Box<dyn Meter> {
    Box::new(Counted {
        counter: Counter::new(values),
        values,
    })
}

struct Counted {
    counter: Counter,
    values: Values,
}

impl Meter for Counted {
    fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        let most = self.values.most();
        let what = match self.values {
            Values::InAll(_) => "the body",
            Values::InEach { .. } => "one object of the body",
        };
        self.counter.feed(bytes).map_err(|_| {
            format!(
                "{what} holds more than {most} values, the maximum (a map counts as four, a list as three)"
            )
        })
    }

    fn largest(&self) -> usize {
        self.counter.largest()
    }
}
