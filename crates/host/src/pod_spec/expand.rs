//! `$(NAME)` in commands, arguments and values, as Kubernetes expands it.
//!
//! A name that is not known stays as it is written, and `$$` stands for `$`.

/// Expands `text` with what `known` says of a name.
pub(crate) fn expand<'a>(text: &str, known: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some(open) = rest.strip_prefix('(') {
            if let Some((name, after)) = open.split_once(')') {
                match known(name) {
                    Some(value) => expanded.push_str(value),
                    None => expanded.extend(["$(", name, ")"]),
                }
                rest = after;
            } else {
                expanded.push_str("$(");
                rest = open;
            }
        } else {
            expanded.push('$');
        }
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references() {
        let cases = [
            ("plain", "plain"),
            ("$(A)", "a"),
            ("x$(A)y$(B)z", "xayb$(A)z"),
            ("$(NONE)", "$(NONE)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$a"),
            ("$$$$(A)", "$$(A)"),
            ("$A", "$A"),
            ("$", "$"),
            ("$(A", "$(A"),
            ("$()", "$()"),
            ("$(A)$(EMPTY)!", "a!"),
            ("100%$ $(A)", "100%$ a"),
            ("$(ä)", "$(ä)"),
        ];
        let known = |name: &str| match name {
            "A" => Some("a"),
            "B" => Some("b$(A)"),
            "EMPTY" => Some(""),
            _ => None,
        };
        for (text, want) in cases {
            assert_eq!(expand(text, known), want, "{text:?}");
        }
    }
}
