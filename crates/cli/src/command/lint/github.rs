//! Findings as commands of a GitHub workflow, which shows them at their lines.

use std::fmt::Write as _;

use trainyard_core::finding::{Finding, Severity};

/// One line.
pub(super) fn line(file: &str, finding: &Finding) -> String {
    let word = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let mut line = format!("::{word} file={}", property(file));
    if finding.span.line > 0 {
        write!(
            line,
            ",line={},col={}",
            finding.span.line, finding.span.column
        )
        .expect("a string takes whatever is written");
    }
    let hint = finding
        .hint
        .as_deref()
        .map(|hint| format!("\nhint: {hint}"));
    let text = format!("{}{}", finding.message, hint.unwrap_or_default());
    format!("{line},title={}::{}\n", property(finding.code), data(&text))
}

/// A message: on one line, and `%` is what escapes.
fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// A property: neither of the characters that separate them either.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use trainyard_core::finding::Span;

    use super::*;

    #[test]
    fn what_would_end_a_command_is_escaped() {
        let finding = Finding {
            code: "TY000",
            severity: Severity::Warning,
            path: String::new(),
            span: Span {
                start: 0,
                end: 0,
                line: 3,
                column: 7,
            },
            message: "50 % of\n`a`".to_owned(),
            hint: Some("do: it".to_owned()),
            fix: None,
        };
        assert_eq!(
            line("a,b:c.yaml", &finding),
            "::warning file=a%2Cb%3Ac.yaml,line=3,col=7,title=TY000::50 %25 of%0A`a`%0Ahint: do: it\n"
        );
    }
}
