//! How a bucket is reached: from the environment variables and files that other programs of S3 read.
//!
//! The environment wins over the files. Nothing of it is ever shown: a setting that is wrong is named, and its value is not.

use std::{
    collections::BTreeMap,
    fmt,
    io::Read as _,
    path::{Path, PathBuf},
};

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};

use super::http::{Server, server};

/// Largest file with settings that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Why the settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSettings {
    /// The endpoint is not a plain address.
    #[error("`{0}` must be `http://HOST` or `https://HOST`, without user or password")]
    Endpoint(String),
    /// The profile is in no file.
    #[error("`AWS_PROFILE` names a profile that is in neither of the two files of profiles")]
    Profile,
    /// Half of a key.
    #[error("an access key needs both `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`")]
    Half,
    /// A value that the client does not know, or that contradicts another one.
    #[error("`{0}` has an unknown value, or one that contradicts other variables")]
    Value(String),
    /// Settings that contradict one another.
    #[error("these variables contradict one another: {0}")]
    Contradiction(String),
    /// The certificates of authorities.
    #[error("`AWS_CA_BUNDLE` names a file without readable certificates")]
    Authorities,
    /// TLS itself.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// The variables of the environment.
#[derive(Clone, Default)]
pub struct Settings(BTreeMap<String, String>);

impl fmt::Debug for Settings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Settings(..)")
    }
}

impl Settings {
    /// Those of this process.
    pub fn from_environment() -> Self {
        let variables = std::env::vars_os();
        variables
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with("AWS_") || name == "HOME")
            .collect()
    }

    fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name)?.as_str();
        (!value.is_empty()).then_some(value)
    }

    /// The file with the certificates of authorities.
    pub(super) fn authorities(&self) -> Option<&str> {
        self.get("AWS_CA_BUNDLE")
    }

    fn file(&self, variable: &str, name: &str) -> Option<PathBuf> {
        match self.get(variable) {
            Some(path) => Some(PathBuf::from(path)),
            None => Some(Path::new(self.get("HOME")?).join(".aws").join(name)),
        }
    }

    /// What the files say of the profile that is meant.
    fn profile(&self) -> Result<BTreeMap<String, String>, BadSettings> {
        let wanted = self.get("AWS_PROFILE");
        let name = wanted.unwrap_or("default");
        let mut values = BTreeMap::new();
        let mut is_there = false;
        let files = [
            ("AWS_CONFIG_FILE", "config"),
            ("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        ];
        for (variable, file) in files {
            let Some(text) = self.file(variable, file).and_then(|path| read(&path)) else {
                continue;
            };
            if let Some(found) = section(&text, name) {
                is_there = true;
                values.extend(found);
            }
        }
        if wanted.is_some() && !is_there {
            return Err(BadSettings::Profile);
        }
        Ok(values)
    }

    /// The client of a bucket, but for its connections.
    pub(super) fn builder(&self, bucket: &str) -> Result<AmazonS3Builder, BadSettings> {
        let has_key = match (
            self.get("AWS_ACCESS_KEY_ID"),
            self.get("AWS_SECRET_ACCESS_KEY"),
        ) {
            (Some(_), Some(_)) => true,
            (None, None) => false,
            _ => return Err(BadSettings::Half),
        };
        let has_role =
            self.get("AWS_WEB_IDENTITY_TOKEN_FILE").is_some() && self.get("AWS_ROLE_ARN").is_some();
        let profile = self.profile()?;
        let from_file = |key: &str| profile.get(key).filter(|value| !value.is_empty());
        let mut builder = AmazonS3Builder::new();
        if let Some(region) = from_file("region") {
            builder = builder.with_region(region);
        }
        if !has_key
            && !has_role
            && let (Some(id), Some(secret)) = (
                from_file("aws_access_key_id"),
                from_file("aws_secret_access_key"),
            )
        {
            builder = builder
                .with_access_key_id(id)
                .with_secret_access_key(secret);
            if let Some(token) = from_file("aws_session_token") {
                builder = builder.with_token(token);
            }
        }
        for (name, value) in &self.0 {
            let Some(key) = key_of(name).filter(|_| !value.is_empty()) else {
                continue;
            };
            match key {
                // Set below.
                AmazonS3ConfigKey::Bucket
                | AmazonS3ConfigKey::ConditionalPut
                | AmazonS3ConfigKey::DisableBulkDelete
                | AmazonS3ConfigKey::Endpoint
                | AmazonS3ConfigKey::S3Endpoint => {}
                // A token belongs to the key beside it, and never to that of a file.
                AmazonS3ConfigKey::Token if !has_key => {}
                AmazonS3ConfigKey::StsEndpoint => {
                    is_endpoint(name, value)?;
                    builder = builder.with_config(key, value);
                }
                key => builder = builder.with_config(key, value),
            }
        }
        let mut endpoint = from_file("endpoint_url").map(|value| ("endpoint_url", value.as_str()));
        for name in ["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"] {
            endpoint = self.get(name).map(|value| (name, value)).or(endpoint);
        }
        if let Some((name, endpoint)) = endpoint {
            let is_plain = is_endpoint(name, endpoint)?;
            builder = builder.with_endpoint(endpoint).with_allow_http(is_plain);
        }
        Ok(builder
            .with_bucket_name(bucket)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            // Objects are removed one by one, in the order that keeps a step whole or gone; not every store has the other request.
            .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true"))
    }

    /// Which variable a client that cannot be built is refused for; `builds` tries one.
    pub(super) fn refused(
        &self,
        bucket: &str,
        builds: &dyn Fn(AmazonS3Builder) -> bool,
    ) -> BadSettings {
        let names: Vec<&String> = self
            .0
            .keys()
            .filter(|name| key_of(name).is_some())
            .collect();
        let is_good = |keep: &dyn Fn(&str) -> bool| {
            let some: Self = (self.0.iter())
                .filter(|(name, _)| keep(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            some.builder(bucket).ok().map(builds)
        };
        // One that is wrong alone, or one without which the others are right.
        let found = names
            .iter()
            .find(|name| is_good(&|one| one == name.as_str()) == Some(false))
            .or_else(|| {
                let mut names = names.iter();
                names.find(|name| is_good(&|one| one != name.as_str()) == Some(true))
            });
        let Some(name) = found else {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            return BadSettings::Contradiction(names.join(", "));
        };
        BadSettings::Value((*name).clone())
    }

    /// Services that give credentials, where the environment names them.
    pub(super) fn metadata(&self) -> Vec<Server> {
        let names = [
            "AWS_METADATA_ENDPOINT",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        ];
        let uris = names.iter().filter_map(|name| self.get(name));
        let uris = uris.filter_map(|uri| uri.parse::<http::Uri>().ok());
        uris.filter_map(|uri| server(&uri)).collect()
    }
}

/// What a variable sets.
fn key_of(name: &str) -> Option<AmazonS3ConfigKey> {
    let name = name.strip_prefix("AWS_")?.to_ascii_lowercase();
    format!("aws_{name}").parse().ok()
}

impl FromIterator<(String, String)> for Settings {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(variables: T) -> Self {
        Self(variables.into_iter().collect())
    }
}

/// Whether the endpoint that a setting names is plain HTTP.
fn is_endpoint(name: &str, text: &str) -> Result<bool, BadSettings> {
    let bad = || BadSettings::Endpoint(name.to_owned());
    let uri: http::Uri = text.parse().map_err(|_| bad())?;
    let authority = uri.authority().map(http::uri::Authority::as_str);
    match (uri.scheme_str(), authority) {
        (Some(scheme @ ("http" | "https")), Some(host)) if !host.contains('@') => {
            Ok(scheme == "http")
        }
        _ => Err(bad()),
    }
}

/// A file of settings; one that is missing or unreadable says nothing.
fn read(path: &Path) -> Option<String> {
    let file = crate::formats::open_regular(path).ok()?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The values of a profile: `[name]`, or `[profile name]` as the second file has it.
fn section(text: &str, name: &str) -> Option<BTreeMap<String, String>> {
    let mut found: Option<BTreeMap<String, String>> = None;
    let mut is_inside = false;
    for line in text.lines() {
        // A line that is set in belongs to the setting above it, which is none of ours.
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) || is_nested {
            continue;
        }
        if let Some(header) = line
            .strip_prefix('[')
            .and_then(|rest| rest.split(']').next())
        {
            let header = header.trim();
            let header = header.strip_prefix("profile ").unwrap_or(header).trim();
            is_inside = header == name;
            if is_inside {
                found.get_or_insert_default();
            }
        } else if is_inside && let Some((key, value)) = line.split_once('=') {
            let values = found.get_or_insert_default();
            values.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{super::http::is_metadata, *};

    const FILE: &str = "# made by hand\n[default]\naws_access_key_id = ONE\naws_secret_access_key=two\n\
        s3 =\n    endpoint_url = nested\n\n[profile other]\nregion = eu-central-1\nendpoint_url = http://127.0.0.1:9000\n";

    fn settings(variables: &[(&str, &str)]) -> Settings {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        variables.iter().map(owned).collect()
    }

    fn value(builder: &AmazonS3Builder, key: AmazonS3ConfigKey) -> Option<String> {
        builder.get_config_value(&key)
    }

    #[test]
    fn sections() {
        let default = section(FILE, "default").unwrap();
        assert_eq!(default["aws_access_key_id"], "ONE");
        assert_eq!(default.get("endpoint_url"), None);
        assert_eq!(section(FILE, "other").unwrap()["region"], "eu-central-1");
        assert_eq!(section(FILE, "third"), None);
    }

    #[test]
    fn environment_wins_over_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        fs::write(&path, FILE).unwrap();
        let file = ("AWS_SHARED_CREDENTIALS_FILE", path.to_str().unwrap());
        let builder = settings(&[file]).builder("abc").unwrap();
        assert_eq!(
            value(&builder, AmazonS3ConfigKey::AccessKeyId).as_deref(),
            Some("ONE")
        );
        assert_eq!(
            value(&builder, AmazonS3ConfigKey::Bucket).as_deref(),
            Some("abc")
        );

        let key = [("AWS_ACCESS_KEY_ID", "ENV"), ("AWS_SECRET_ACCESS_KEY", "s")];
        let builder = settings(&[file, key[0], key[1], ("AWS_BUCKET", "zzz")])
            .builder("abc")
            .unwrap();
        assert_eq!(
            value(&builder, AmazonS3ConfigKey::AccessKeyId).as_deref(),
            Some("ENV")
        );
        assert_eq!(
            value(&builder, AmazonS3ConfigKey::Bucket).as_deref(),
            Some("abc")
        );

        let role = [("AWS_WEB_IDENTITY_TOKEN_FILE", "t"), ("AWS_ROLE_ARN", "r")];
        let builder = settings(&[file, role[0], role[1]]).builder("abc").unwrap();
        assert_eq!(value(&builder, AmazonS3ConfigKey::AccessKeyId), None);

        let other = settings(&[file, ("AWS_PROFILE", "other")])
            .builder("abc")
            .unwrap();
        assert_eq!(value(&other, AmazonS3ConfigKey::AccessKeyId), None);
        assert_eq!(
            value(&other, AmazonS3ConfigKey::Region).as_deref(),
            Some("eu-central-1")
        );
        assert_eq!(
            value(&other, AmazonS3ConfigKey::Endpoint).as_deref(),
            Some("http://127.0.0.1:9000")
        );
        let missing = settings(&[file, ("AWS_PROFILE", "third")]).builder("abc");
        assert_eq!(missing.unwrap_err(), BadSettings::Profile);
    }

    #[test]
    fn bad_settings_are_named_without_their_values() {
        for (name, value) in [
            ("AWS_ENDPOINT_URL", "https://user:geheim@host"),
            ("AWS_ENDPOINT_URL", "host:9000"),
            ("AWS_ENDPOINT", "https://user:geheim@host"),
            ("AWS_ENDPOINT_URL_S3", "ftp://host"),
            ("AWS_ENDPOINT_URL_STS", "https://user:geheim@host"),
        ] {
            let found = settings(&[(name, value)]).builder("abc").unwrap_err();
            assert_eq!(found, BadSettings::Endpoint(name.to_owned()), "{value}");
            assert!(found.to_string().contains(&format!("`{name}`")), "{found}");
            assert!(!found.to_string().contains("geheim"), "{found}");
        }
        let half = settings(&[("AWS_ACCESS_KEY_ID", "geheim")]).builder("abc");
        assert_eq!(half.unwrap_err(), BadSettings::Half);
        let all = settings(&[("AWS_SECRET_ACCESS_KEY", "geheim")]);
        assert!(!format!("{all:?}").contains("geheim"));
    }

    #[test]
    fn token_belongs_to_the_key_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        fs::write(&path, FILE).unwrap();
        let file = ("AWS_SHARED_CREDENTIALS_FILE", path.to_str().unwrap());
        let token = ("AWS_SESSION_TOKEN", "stale");
        let of_file = settings(&[file, token]).builder("abc").unwrap();
        assert_eq!(
            value(&of_file, AmazonS3ConfigKey::AccessKeyId).as_deref(),
            Some("ONE")
        );
        assert_eq!(value(&of_file, AmazonS3ConfigKey::Token), None);
        let key = [("AWS_ACCESS_KEY_ID", "ENV"), ("AWS_SECRET_ACCESS_KEY", "s")];
        let of_environment = settings(&[file, token, key[0], key[1]])
            .builder("abc")
            .unwrap();
        assert_eq!(
            value(&of_environment, AmazonS3ConfigKey::Token).as_deref(),
            Some("stale")
        );
    }

    #[test]
    fn service_of_credentials_is_known_in_any_form() {
        let name = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
        let named = settings(&[(name, "http://Credentials.Example:80/v1")]).metadata();
        for (address, wanted) in [
            ("http://credentials.example/v1", true),
            ("http://credentials.example:80/v1", true),
            ("https://credentials.example/v1", false),
            ("http://credentials.example:8080/v1", false),
            ("http://169.254.169.254/latest", true),
            ("http://169.254.example/latest", false),
        ] {
            let uri = address.parse().unwrap();
            assert_eq!(is_metadata(&uri, &named), wanted, "{address}");
        }
    }

    #[test]
    fn every_endpoint_is_used() {
        for (name, key) in [
            ("AWS_ENDPOINT", AmazonS3ConfigKey::Endpoint),
            ("AWS_ENDPOINT_URL", AmazonS3ConfigKey::Endpoint),
            ("AWS_ENDPOINT_URL_S3", AmazonS3ConfigKey::Endpoint),
            ("AWS_ENDPOINT_URL_STS", AmazonS3ConfigKey::StsEndpoint),
        ] {
            let builder = settings(&[(name, "https://host")]).builder("abc").unwrap();
            assert_eq!(
                value(&builder, key).as_deref(),
                Some("https://host"),
                "{name}"
            );
        }
    }
}
