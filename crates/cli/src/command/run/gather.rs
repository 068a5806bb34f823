//! What the files of a run hold, with what the options change in it.

use std::{
    hash::{BuildHasher as _, RandomState},
    path::Path,
    sync::Arc,
};

use serde_json::Value;
use trainyard_core::{
    finding::{Finding, Severity},
    lint,
    spec::{self, Contents, Document, File, Job, Kind, Part, Policy, RoleInFile},
};

use super::choose;
use crate::{
    args::Run,
    command::{note_foreign, print_finding},
    fabrics::Fabrics,
    failure::Failure,
    printer::Printer,
    source,
};

/// The rule of fields that do not exist.
const UNKNOWN_FIELD: &str = "TY106";

/// The files of a run as they are read, before they are judged together.
pub(super) struct Gathering<'a> {
    args: &'a Run,
    texts: Vec<Text>,
    /// A file could not be read as YAML; that was printed.
    unreadable: bool,
}

/// One file with what the options changed in it.
struct Text {
    name: Arc<str>,
    file: File,
    /// Each `--set`, and the path that it means.
    set: Vec<(String, String)>,
    /// Whether its warnings are printed.
    warnings: bool,
}

/// What the files hold.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) jobs: Vec<choose::Candidate>,
    pub(super) companions: Vec<Value>,
    pub(super) fabrics: Fabrics,
}

impl<'a> Gathering<'a> {
    pub(super) fn new(args: &'a Run) -> Self {
        Self {
            args,
            texts: Vec::new(),
            unreadable: false,
        }
    }

    /// Takes in a file.
    pub(super) fn read(&mut self, path: &Path, printer: &mut Printer) -> Result<(), Failure> {
        let bytes = source::read(path, spec::MAX_BYTES)?;
        self.take(&bytes, &source::name(path), true, printer)
    }

    /// Takes in the text of a file called `name`, whose warnings are printed where that is asked for.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        name: &str,
        warnings: bool,
        printer: &mut Printer,
    ) -> Result<(), Failure> {
        let mut file = match spec::read(bytes) {
            Ok(file) => file,
            Err(finding) => {
                print_finding(&finding, name, &spec::source_text(bytes), printer);
                self.unreadable = true;
                return Ok(());
            }
        };
        let mut set = Vec::new();
        for document in &mut file.documents {
            if self.is_meant(document) {
                set.extend(self.change(document)?);
            }
        }
        self.texts.push(Text {
            name: name.into(),
            file,
            set,
            warnings,
        });
        Ok(())
    }

    /// Judges the files together; none where one of them has an error. All errors are printed.
    pub(super) fn judge(mut self, printer: &mut Printer) -> Result<Option<Gathered>, Failure> {
        let files = self.texts.iter_mut().map(|text| &mut text.file);
        spec::share_runtimes(files.flat_map(|file| &mut file.documents));
        let together: Vec<&File> = self.texts.iter().map(|text| &text.file).collect();
        let mut refused = self.unreadable;
        for (text, findings) in self.texts.iter().zip(lint::lint_together(&together)) {
            for finding in &findings {
                if let Some((option, _)) = text.set.iter().find(|(_, path)| names(finding, path)) {
                    return Err(unknown(option, finding));
                }
                let error = finding.severity == Severity::Error;
                refused |= error;
                if error || text.warnings && printer.wants_warnings() {
                    print_finding(finding, &text.name, &text.file.text, printer);
                }
            }
        }
        if refused {
            return Ok(None);
        }
        for text in &mut self.texts {
            for name in text.file.name_jobs(Some(&mut random_end)) {
                printer.summary(&format!("note: `generateName` becomes `{name}`"));
            }
        }
        let together: Vec<&File> = self.texts.iter().map(|text| &text.file).collect();
        note_foreign(&together, "not started here", printer);
        let contents = Contents::of(together);
        let mut gathered = Gathered::default();
        for text in &self.texts {
            for (part, document) in contents.parts(&text.file) {
                match part {
                    Part::Job(_) => {
                        let mut job = spec::check(document).job;
                        if let Some(job) = job.as_mut().filter(|job| job.kind == Kind::Train) {
                            self.change_train(job)?;
                        }
                        gathered.jobs.extend(job.map(|job| choose::Candidate {
                            job,
                            manifest: document.tree.to_json(),
                            file: Arc::clone(&text.name),
                        }));
                    }
                    Part::Fabric => gathered.fabrics.add(document),
                    Part::Companion => gathered.companions.push(document.tree.to_json()),
                    Part::Foreign | Part::Refused => {}
                }
            }
        }
        Ok(Some(gathered))
    }

    /// The same as [`Self::change`], for what is only known of a `TrainJob` with its runtime.
    fn change_train(&self, job: &mut Job) -> Result<(), Failure> {
        // The job has its new name by now.
        let named = self.args.name.as_deref();
        let wanted = self.args.job.as_deref();
        let wanted = wanted.map(|wanted| named.unwrap_or(wanted));
        if wanted.is_some_and(|wanted| wanted != job.name.as_str()) {
            return Ok(());
        }
        if let Some(Policy::Mpi { .. }) = job.train().map(|own| &own.policy) {
            let failure = format!(
                "TrainJob `{}` starts its ranks by MPI and ssh, which a local run does not do",
                job.name
            );
            return Err(Failure::new(failure).hint(
                "`trainyard render` prints what it becomes; an MPIJob of kubeflow.org/v2beta1 runs here",
            ));
        }
        if let Some(restarts) = self.args.restarts {
            // The limit is the number of attempts.
            job.run_policy.backoff_limit = Some(restarts + 1);
        }
        for (name, value) in &self.args.env {
            spec::set_in_all(job, name, value);
        }
        Ok(())
    }

    /// Whether `document` is the job that the options are about.
    fn is_meant(&self, document: &Document) -> bool {
        let named = document.name().map(|(name, _)| name);
        let wanted = self.args.job.as_deref();
        matches!(document.role_in_file(), RoleInFile::Job(_))
            && (wanted.is_none() || wanted == named)
    }

    /// Sets what the options say, and returns each `--set` with the path that it means.
    fn change(&self, document: &mut Document) -> Result<Vec<(String, String)>, Failure> {
        let args = self.args;
        let mut set = Vec::new();
        for (path, value) in &args.set {
            let option = format!("--set {path}={value}");
            let path = spec::assign(document, path, value)
                .map_err(|error| Failure::new(format!("`{option}`: {error}")))?;
            set.push((option, path));
        }
        let assign = |document: &mut Document, path: &str, value: &str| {
            spec::assign(document, path, value)
                .map(drop)
                .map_err(|error| Failure::new(error.to_string()))
        };
        if let Some(name) = args.name.as_ref().filter(|_| args.command.is_empty()) {
            assign(document, "metadata.name", &format!("\"{name}\""))?;
        }
        if document.job_kind() == Some(Kind::Train) {
            // The rest of a `TrainJob` is in its runtime: it is changed in the job that is made of both.
            return Ok(set);
        }
        if let Some(restarts) = args.restarts {
            // The limit is the number of attempts.
            let limit = (restarts + 1).to_string();
            assign(document, "spec.runPolicy.backoffLimit", &limit)?;
        }
        for (name, value) in &args.env {
            spec::set_variable(document, name, value);
        }
        Ok(set)
    }
}

/// Five characters as the cluster adds them to `generateName`: none that makes up words.
fn random_end() -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    // The keys of the standard library's maps are random for each of them.
    let mut number = RandomState::new().hash_one(());
    let mut end = String::new();
    for _ in 0..5 {
        let at = usize::try_from(number % 27).unwrap_or_default();
        end.push(char::from(LETTERS[at]));
        number /= 27;
    }
    end
}

/// Whether `finding` says that the field at `path`, or one on the way to it, does not exist.
fn names(finding: &Finding, path: &str) -> bool {
    let rest = path.strip_prefix(finding.path.as_str());
    finding.code == UNKNOWN_FIELD
        && !finding.path.is_empty()
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn unknown(option: &str, finding: &Finding) -> Failure {
    let message = finding.message.trim_end_matches(", it is ignored");
    let failure = Failure::new(format!("`{option}`: {message}"));
    match &finding.hint {
        Some(hint) => failure.hint(hint.clone()),
        None => failure,
    }
}
