//! Who may ask: pure decisions over what a request carries.
//!
//! Nothing that a browser sends by itself is trusted: there are no cookies, so a foreign page has nothing to use. The list of
//! hosts refuses pages whose name was pointed at this address.

mod secret;

use http::{HeaderValue, Method, StatusCode, header};

pub(crate) use self::secret::{CODE_LASTS, Codes, hex};
pub use self::secret::{Token, TokenError, digest};
use crate::refusal::Refusal;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    /// The page and its assets, which hold no data.
    Page,
    /// Documents and the stream.
    Api,
    /// The exchange of a one-time code for the token.
    Login,
}

/// Which page made a request, as the browser says in `Sec-Fetch-Site`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site<'a> {
    /// The header is not there.
    NotSent,
    /// It is there once.
    Sent(&'a str),
    /// It cannot be read.
    Unreadable,
}

/// What a request carries that decides whether it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) area: Area,
    pub(crate) method: &'a Method,
    /// The server that it means; nothing where that is not clear.
    pub(crate) host: Option<&'a str>,
    /// Which page made it.
    pub(crate) site: Site<'a>,
    /// `Authorization`.
    pub(crate) authorization: Option<&'a [u8]>,
}

/// What a request for data needs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Needs<'a> {
    /// This token.
    Token(&'a Token),
    /// Nothing.
    Nothing,
    /// A token that is reviewed later; whether there is one.
    Credential(bool),
}

/// Whether a request is answered; else why not. Without a list of hosts it may mean any.
pub(crate) fn check(
    caller: &Caller<'_>,
    hosts: Option<&[String]>,
    needs: Needs<'_>,
) -> Result<(), Refusal> {
    if let Some(hosts) = hosts {
        check_host(caller.host, hosts)?;
    }
    check_method(caller.area, caller.method)?;
    if caller.area == Area::Page {
        return Ok(());
    }
    check_site(caller.site)?;
    match caller.area {
        Area::Api => check_needs(needs, caller.authorization),
        Area::Page | Area::Login => Ok(()),
    }
}

fn check_needs(needs: Needs<'_>, authorization: Option<&[u8]>) -> Result<(), Refusal> {
    match needs {
        Needs::Token(token) if token.is_in(authorization) => Ok(()),
        Needs::Token(_) => Err(unauthorized(
            "open the URL that `trainyard dashboard` printed, with its token",
        )),
        Needs::Nothing | Needs::Credential(true) => Ok(()),
        Needs::Credential(false) => Err(unauthorized(
            "send a token of the cluster, such as that of `kubectl create token NAME`",
        )),
    }
}

fn check_host(host: Option<&str>, hosts: &[String]) -> Result<(), Refusal> {
    let known = |host: &str| hosts.iter().any(|known| is_host(known, host));
    if host.is_some_and(known) {
        return Ok(());
    }
    // What was sent is not repeated: it is nothing that whoever reads this can use.
    Err(Refusal::new(
        StatusCode::MISDIRECTED_REQUEST,
        "wrongHost",
        "the header `Host` of the request names another server than this one",
        format!("open the page at {}", hosts.join(" or ")),
    ))
}

/// Whether a host is one that is known; `name:*` is one with any port, or without.
fn is_host(known: &str, host: &str) -> bool {
    let Some(name) = known.strip_suffix(":*") else {
        return known.eq_ignore_ascii_case(host);
    };
    let (found, port) = host.split_at_checked(name.len()).unwrap_or((host, ""));
    let is_port = |port: &str| port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    let has_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    found.eq_ignore_ascii_case(name) && has_port
}

fn check_method(area: Area, method: &Method) -> Result<(), Refusal> {
    let (allowed, names) = match area {
        Area::Page | Area::Api => (
            *method == Method::GET || *method == Method::HEAD,
            "GET, HEAD",
        ),
        Area::Login => (*method == Method::POST, "POST"),
    };
    if allowed {
        return Ok(());
    }
    let mut refusal = Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "badRequest",
        "the method of the request is not allowed at this path",
        format!("use {names}"),
    );
    refusal.field = Some(Box::new((header::ALLOW, HeaderValue::from_static(names))));
    Err(refusal)
}

fn check_site(site: Site<'_>) -> Result<(), Refusal> {
    match site {
        // Programs that are no browsers send none.
        Site::NotSent | Site::Sent("same-origin" | "none") => Ok(()),
        Site::Sent(_) | Site::Unreadable => Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "forbidden",
            "the request was made by a page of another origin (`Sec-Fetch-Site`)",
            "open the page of this server and ask from there",
        )),
    }
}

fn unauthorized(hint: &str) -> Refusal {
    let mut refusal = Refusal::new(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        "the request has no valid token in the header `Authorization: Bearer`",
        hint,
    );
    let scheme = HeaderValue::from_static("Bearer");
    refusal.field = Some(Box::new((header::WWW_AUTHENTICATE, scheme)));
    refusal
}

/// The names under which a server on this machine is reached.
pub fn local_hosts(port: u16) -> Vec<String> {
    let names = ["127.0.0.1", "localhost", "[::1]"];
    let mut hosts: Vec<String> = names.iter().map(|name| format!("{name}:{port}")).collect();
    if port == 80 {
        // Browsers leave it out.
        hosts.extend(names.map(str::to_owned));
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn who_is_answered() {
        let token = Token::parse(TOKEN).unwrap();
        let hosts = local_hosts(4040);
        let bearer = format!("Bearer {TOKEN}");
        let ours = Some("127.0.0.1:4040");
        let own = Some(bearer.as_bytes());
        let (get, post) = (Method::GET, Method::POST);
        let unsent = Site::NotSent;
        let cases = [
            (Area::Page, &get, ours, unsent, None, 200),
            (Area::Page, &Method::HEAD, ours, unsent, None, 200),
            (Area::Page, &get, ours, Site::Sent("cross-site"), None, 200),
            (Area::Page, &post, ours, unsent, None, 405),
            (
                Area::Page,
                &get,
                Some("evil.example:4040"),
                unsent,
                None,
                421,
            ),
            (Area::Page, &get, None, unsent, None, 421),
            (Area::Page, &get, Some(""), unsent, None, 421),
            (Area::Page, &get, Some("127.0.0.1"), unsent, None, 421),
            (Area::Page, &get, Some("127.0.0.1:4041"), unsent, None, 421),
            (Area::Page, &get, Some("LOCALHOST:4040"), unsent, None, 200),
            (Area::Page, &get, Some("[::1]:4040"), unsent, None, 200),
            (Area::Api, &get, ours, unsent, own, 200),
            (Area::Api, &get, ours, Site::Sent("same-origin"), own, 200),
            (Area::Api, &get, ours, Site::Sent("none"), own, 200),
            (Area::Api, &get, ours, Site::Sent("same-site"), own, 403),
            (Area::Api, &get, ours, Site::Sent("cross-site"), own, 403),
            (Area::Api, &get, ours, Site::Unreadable, own, 403),
            (Area::Api, &get, Some("evil.example"), unsent, own, 421),
            (Area::Api, &get, ours, unsent, None, 401),
            (Area::Api, &get, ours, unsent, Some(TOKEN.as_bytes()), 401),
            (
                Area::Api,
                &get,
                ours,
                unsent,
                Some("Bearer wrong".as_bytes()),
                401,
            ),
            (
                Area::Api,
                &get,
                ours,
                unsent,
                Some("Bearer ".as_bytes()),
                401,
            ),
            (Area::Api, &post, ours, unsent, own, 405),
            (
                Area::Login,
                &post,
                ours,
                Site::Sent("same-origin"),
                None,
                200,
            ),
            (
                Area::Login,
                &post,
                ours,
                Site::Sent("cross-site"),
                None,
                403,
            ),
            (Area::Login, &get, ours, unsent, own, 405),
        ];
        for (number, (area, method, host, site, authorization, want)) in cases.iter().enumerate() {
            let caller = Caller {
                area: *area,
                method,
                host: *host,
                site: *site,
                authorization: *authorization,
            };
            let found = check(&caller, Some(&hosts), Needs::Token(&token))
                .map_or_else(|no| no.status.as_u16(), |()| 200);
            assert_eq!(found, *want, "case {number}: {caller:?}");
        }
    }

    #[test]
    fn every_other_method_is_refused() {
        for method in [
            "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW", "get",
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            for area in [Area::Page, Area::Api, Area::Login] {
                let refusal = check_method(area, &method).unwrap_err();
                assert_eq!(refusal.status, 405, "{method}");
                assert!(refusal.field.is_some(), "{method}");
            }
        }
    }

    #[test]
    fn any_port_of_a_name() {
        let cases = [
            ("localhost", true),
            ("LOCALHOST:8080", true),
            ("localhost:", true),
            ("localhost:80a", false),
            ("localhost:123456", false),
            ("localhost.evil.example:80", false),
            ("localhostx", false),
            ("local", false),
            ("", false),
        ];
        for (host, want) in cases {
            assert_eq!(is_host("localhost:*", host), want, "{host}");
        }
        assert!(is_host("[::1]:*", "[::1]:8265"));
    }

    #[test]
    fn port_80_is_left_out_by_browsers() {
        assert!(local_hosts(80).contains(&"localhost".to_owned()));
        assert!(!local_hosts(81).contains(&"localhost".to_owned()));
    }
}
