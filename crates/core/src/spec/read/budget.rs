//! What a file may still use of the limits.

use super::{MAX_DOCUMENTS, MAX_NODES, MAX_TEXT_BYTES};
use crate::{
    finding::{Finding, Span, catalogue},
    spec::{Node, Value},
};

/// What is left.
pub(super) struct Budget {
    nodes: usize,
    text_bytes: usize,
    documents: usize,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            nodes: MAX_NODES,
            text_bytes: MAX_TEXT_BYTES,
            documents: MAX_DOCUMENTS,
        }
    }

    /// Pays for one value or key with `text_bytes` of text at `span`.
    pub(super) fn pay(&mut self, text_bytes: usize, span: Span) -> Result<(), Box<Finding>> {
        let fault = |message: String| {
            Box::new(Finding::new(&catalogue::TOO_MANY_VALUES, "", span, message))
        };
        self.nodes = self.nodes.checked_sub(1).ok_or_else(|| {
            fault(format!(
                "the file has more than {MAX_NODES} values, counting what its aliases expand to"
            ))
        })?;
        self.text_bytes = self.text_bytes.checked_sub(text_bytes).ok_or_else(|| {
            fault(format!(
                "the file has more than {MAX_TEXT_BYTES} bytes of text, counting what its aliases expand to"
            ))
        })?;
        Ok(())
    }

    /// Pays for a copy of `node` at `span`.
    pub(super) fn pay_copy(&mut self, node: &Node, span: Span) -> Result<(), Box<Finding>> {
        let text_bytes = match &node.value {
            Value::String(text) | Value::Float(text) => text.len(),
            _ => 0,
        };
        self.pay(text_bytes, span)?;
        match &node.value {
            Value::List(items) => {
                for item in items {
                    self.pay_copy(item, span)?;
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    self.pay(entry.key.len(), span)?;
                    self.pay_copy(&entry.value, span)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Pays for one document.
    pub(super) fn pay_document(&mut self, span: Span) -> Result<(), Box<Finding>> {
        self.documents = self.documents.checked_sub(1).ok_or_else(|| {
            Finding::new(
                &catalogue::TOO_MANY_DOCUMENTS,
                "",
                span,
                format!("the file has more than {MAX_DOCUMENTS} documents"),
            )
        })?;
        Ok(())
    }
}
