//! Descriptions of the codes that drivers and network cards print.

/// What an Xid of the NVIDIA driver means, and the label that it adds to `xid_error`.
pub(crate) struct Xid {
    pub(crate) words: &'static str,
    pub(crate) label: Option<&'static str>,
    /// Usually caused by the program that runs on the GPU.
    pub(crate) program: bool,
}

/// The Xid called `number`, from NVIDIA's catalogue "Xid Errors".
pub(crate) fn xid(number: u32) -> Xid {
    let (words, label, program) = match number {
        8 => ("the GPU stopped processing", None, false),
        13 => (
            "graphics engine exception: usually an out-of-bounds access",
            None,
            true,
        ),
        31 => (
            "MMU fault: the program accessed an illegal address",
            None,
            true,
        ),
        32 => ("invalid or corrupted push buffer stream", None, false),
        38 => ("driver firmware error", None, false),
        43 => (
            "GPU stopped processing: the driver reset the channel of a faulty program",
            None,
            true,
        ),
        45 => (
            "preemptive cleanup after an earlier error or a killed program",
            None,
            true,
        ),
        46 => ("GPU stopped processing", None, false),
        48 => ("double bit ECC error", Some("ecc_error"), false),
        61 | 62 => ("internal micro-controller halt", None, false),
        63 => (
            "row remapping or page retirement recorded",
            Some("ecc_error"),
            false,
        ),
        64 => (
            "row remapping or page retirement failed",
            Some("ecc_error"),
            false,
        ),
        68 => ("video processor exception", None, false),
        69 => ("graphics engine class error", None, true),
        79 => (
            "GPU has fallen off the bus",
            Some("gpu_fallen_off_bus"),
            false,
        ),
        92 => (
            "high rate of corrected ECC errors",
            Some("ecc_error"),
            false,
        ),
        94 => ("contained ECC error", Some("ecc_error"), false),
        95 => ("uncontained ECC error", Some("ecc_error"), false),
        109 => ("context switch timeout", None, false),
        110 => ("security fault", None, false),
        119 => ("GSP firmware did not respond", None, false),
        120 => ("GSP firmware error", None, false),
        121 => ("C2C link error", None, false),
        122..=124 => ("SPI or PMU error", None, false),
        137 => ("NVLink access fault", Some("nvlink_error"), false),
        140 => ("unrecovered ECC error", Some("ecc_error"), false),
        143 => ("GPU initialization error", None, false),
        74 | 144..=150 => ("NVLink error", Some("nvlink_error"), false),
        154 => ("the GPU needs a reset or a reboot", None, false),
        _ => ("see NVIDIA's Xid catalogue", None, false),
    };
    Xid {
        words,
        label,
        program,
    }
}

/// A work completion status of verbs (`enum ibv_wc_status`).
pub(super) fn completion(status: u32) -> &'static str {
    const WORDS: [&str; 24] = [
        "success",
        "local length error",
        "local queue pair operation error",
        "local context error",
        "local protection error",
        "flushed: the queue had failed before",
        "memory window bind error",
        "bad response",
        "local access error",
        "remote invalid request",
        "remote access error",
        "remote operation error",
        "retries exceeded: the other side does not respond",
        "receiver-not-ready retries exceeded",
        "local violation of a reliable domain",
        "remote invalid request of a reliable domain",
        "remote aborted",
        "invalid end-to-end context number",
        "invalid end-to-end context state",
        "fatal error",
        "response timeout",
        "general error",
        "tag matching error",
        "tag matching rendezvous incomplete",
    ];
    usize::try_from(status)
        .ok()
        .and_then(|status| WORDS.get(status).copied())
        .unwrap_or("unknown status")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_words() {
        assert_eq!(xid(79).label, Some("gpu_fallen_off_bus"));
        assert_eq!(xid(48).label, Some("ecc_error"));
        assert!(xid(31).program && !xid(119).program);
        assert!(completion(12).starts_with("retries exceeded"));
        assert_eq!(completion(99), "unknown status");
    }
}
