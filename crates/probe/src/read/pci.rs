//! The place of a device on the PCI bus.

use trainyard_core::probe::{Pcie, Probed};

use crate::files::{Malformed, Root};

/// The place of the device whose folder (or a link to it) is `folder`.
pub(super) fn place(root: &Root, folder: &str) -> Pcie {
    let parts = root.resolve(folder);
    let parts = parts.value().cloned().unwrap_or_default();
    let path = parts
        .into_iter()
        .filter(|part| is_bus(part) || is_address(part));
    let number = |name: &str| root.number(&format!("{folder}/{name}"));
    let generation = |name: &str| {
        root.text(&format!("{folder}/{name}"))
            .and_then(|text| generation(&text))
    };
    let numa = root.text(&format!("{folder}/numa_node"));
    Pcie {
        path: path.collect(),
        numa: numa.and_then(|text| text.parse().map_err(|_| Malformed::NotNumber)),
        generation: generation("current_link_speed"),
        generation_most: generation("max_link_speed"),
        width: number("current_link_width"),
        width_most: number("max_link_width"),
    }
}

fn is_bus(part: &str) -> bool {
    part.strip_prefix("pci")
        .is_some_and(|rest| rest.contains(':'))
}

/// Whether it is an address such as `0000:17:00.0`.
fn is_address(part: &str) -> bool {
    let mut fields = part.split([':', '.']);
    let is_number =
        |field: &str| !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_hexdigit());
    part.contains('.') && fields.clone().count() == 4 && fields.all(is_number)
}

/// The generation of a link by its speed, such as `32.0 GT/s PCIe`.
fn generation(text: &str) -> Result<u64, Malformed> {
    let speed = text.split_whitespace().next().unwrap_or_default();
    match speed {
        "2.5" => Ok(1),
        "5.0" | "5" => Ok(2),
        "8.0" | "8" => Ok(3),
        "16.0" | "16" => Ok(4),
        "32.0" | "32" => Ok(5),
        "64.0" | "64" => Ok(6),
        _ => Err(Malformed::Not(
            speed.escape_debug().to_string(),
            "a link speed",
        )),
    }
}

/// An address as the kernel writes it: NVIDIA's library gives the domain eight digits.
pub(super) fn address(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    let Some((domain, rest)) = text.split_once(':') else {
        return text;
    };
    let domain = u32::from_str_radix(domain, 16).unwrap_or_default();
    format!("{domain:04x}:{rest}")
}

/// A number in hexadecimal, such as `0x10de`.
pub(super) fn identifier(root: &Root, path: &str) -> Probed<u64> {
    root.text(path).and_then(|text| {
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        u64::from_str_radix(digits, 16)
            .map_err(|_| Malformed::Not(path.to_owned(), "an identifier"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_generations() {
        assert_eq!(address("00000000:17:00.0"), "0000:17:00.0");
        assert_eq!(address("0001:C1:00.0"), "0001:c1:00.0");
        assert!(is_address("0000:17:00.0") && !is_address("infiniband") && !is_address("1.2"));
        assert!(is_bus("pci0000:15") && !is_bus("pci"));
        assert_eq!(generation("32.0 GT/s PCIe"), Ok(5));
        assert_eq!(generation("2.5 GT/s"), Ok(1));
        assert!(generation("Unknown").is_err());
    }
}
