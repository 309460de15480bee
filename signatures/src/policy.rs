//! The policy: which charts need which digest or signature.
//!
//! Rules only add to each other: every rule that is about a chart must be satisfied, whoever wrote it, so one more rule never lets more
//! through. A field that is not known is an error, since a misspelt demand must not pass for none.

use golib::glob::Glob;
use serde::Deserialize;
use serde_json::Value;

use crate::address::Address;
use crate::cosign::{Keyless, PublicKey, Signer};
use crate::evidence::{Evidence, Subject};
use crate::openpgp::Keyring;
use crate::pattern::SourcePattern;
use crate::provenance;
use crate::refusal::{Refusal, Unmet};

/// Longest policy that is read, in bytes; a Kubernetes object cannot be larger.
const MAX_POLICY_BYTES: usize = 1 << 20;
/// Rules of a policy, and entries of each list in it.
const MAX_ENTRIES: usize = 200;

/// A text that is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {problem}")]
pub struct PolicyError {
    /// Which part of it, as a path.
    pub at: String,
    /// What is wrong there.
    pub problem: String,
}

impl PolicyError {
    fn new(at: impl Into<String>, problem: impl ToString) -> Self {
        Self {
            at: at.into(),
            problem: problem.to_string(),
        }
    }
}

/// Which charts need which digest or signature. The default lets everything through.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    refuses_unmatched: bool,
    refuses_content: bool,
}

/// One rule of a policy.
#[derive(Clone, Debug)]
pub struct Rule {
    name: String,
    /// Addresses it is about; none where it is only about bundles that name it.
    sources: Vec<SourcePattern>,
    /// The archive's or the manifest's; one of them, where there are any.
    digests: Vec<String>,
    /// One of them must have signed, where there are any.
    signers: Vec<Authority>,
}

#[derive(Clone, Debug)]
struct Authority {
    name: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Cosign(Signer),
    Provenance(Keyring),
}

/// A field that is there; `null` does not count as left out.
fn given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PolicyText {
    #[serde(default)]
    rules: Vec<Value>,
    #[serde(default)]
    unmatched: Otherwise,
    #[serde(default)]
    content: Otherwise,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Otherwise {
    #[default]
    Allow,
    Refuse,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RuleText {
    #[serde(default)]
    name: String,
    #[serde(default, deserialize_with = "given")]
    sources: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given")]
    digests: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given")]
    signed_by: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AuthorityText {
    #[serde(default)]
    name: String,
    #[serde(default, deserialize_with = "given")]
    cosign: Option<CosignText>,
    #[serde(default, deserialize_with = "given")]
    provenance: Option<ProvenanceText>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CosignText {
    #[serde(default, deserialize_with = "given")]
    public_key: Option<String>,
    #[serde(default, deserialize_with = "given")]
    issuer: Option<String>,
    #[serde(default, deserialize_with = "given")]
    identity: Option<String>,
    #[serde(default, deserialize_with = "given")]
    identity_reg_exp: Option<String>,
    #[serde(default, deserialize_with = "given")]
    trusted_root: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    transparency_log: Option<Asked>,
    #[serde(default, deserialize_with = "given")]
    certificate_transparency: Option<Asked>,
    #[serde(default)]
    signed_as: Vec<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Asked {
    Required,
    Ignored,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProvenanceText {
    keyring: String,
}

impl Policy {
    /// Reads a policy, YAML or JSON; `docs/signatures.md` describes it.
    ///
    /// ```
    /// use signatures::Policy;
    ///
    /// assert!(Policy::parse("content: refuse")?.refuses_content());
    /// // What is not known is no policy, so that a slip lets nothing through.
    /// assert!(Policy::parse("unmatchd: refuse").is_err());
    /// # Ok::<(), signatures::PolicyError>(())
    /// ```
    ///
    /// # Errors
    /// The text is malformed, has unknown fields or duplicate keys, or a key or certificate in it cannot be used.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let policy: PolicyText = match document("policy", text)? {
            Value::Null => {
                let problem = "it is empty; {} is a policy that asks for nothing";
                return Err(PolicyError::new("policy", problem));
            }
            value => typed("policy", value)?,
        };
        limited("rules", policy.rules.len())?;
        let rules = policy.rules.into_iter().enumerate();
        let rules = rules
            .map(|(at, rule)| {
                let at = format!("rules[{at}]");
                let rule = Rule::read(&at, rule)?;
                match rule.name.is_empty() {
                    true => Err(PolicyError::new(at, "it has no name")),
                    false => Ok(rule),
                }
            })
            .collect::<Result<Vec<Rule>, _>>()?;
        for (at, rule) in rules.iter().enumerate() {
            if rules[..at].iter().any(|other| other.name == rule.name) {
                let at = format!("rules[{at}]");
                return Err(PolicyError::new(
                    at,
                    format!("there are two rules {:?}", rule.name),
                ));
            }
        }
        Ok(Self {
            rules,
            refuses_unmatched: policy.unmatched == Otherwise::Refuse,
            refuses_content: policy.content == Otherwise::Refuse,
        })
    }

    /// Whether it asks anything of charts.
    pub fn is_about_charts(&self) -> bool {
        !self.rules.is_empty() || self.refuses_unmatched
    }

    /// Whether files that come through upstream, which nobody signs, are refused.
    pub fn refuses_content(&self) -> bool {
        self.refuses_content
    }

    /// What a chart with these addresses needs; `own` is what its bundle asks for besides.
    ///
    /// # Errors
    /// No rule is about the chart and the policy refuses such, or the bundle names a rule that there is not.
    pub fn demands<'a>(
        &'a self,
        subject: &Subject,
        own: impl IntoIterator<Item = &'a BundleRule>,
    ) -> Result<Demands<'a>, Refusal> {
        let addresses = || subject.addresses.iter().map(Address::forms);
        // What no rule can be about would escape them all.
        let is_known = addresses().next().is_some() && addresses().all(|forms| !forms.is_empty());
        if self.is_about_charts() && !is_known {
            let tried = "nobody knows which rules of the agent's policy are about its address";
            return Err(subject.refused("unmatched", tried.to_owned()));
        }
        let forms: Vec<&str> = addresses().flatten().map(String::as_str).collect();
        let is_about = |rule: &&Rule| rule.is_about(&forms);
        let mut rules: Vec<&Rule> = self.rules.iter().filter(is_about).collect();
        if rules.is_empty() && self.refuses_unmatched {
            let tried = "no rule of the agent's policy is about it, and such charts are refused";
            return Err(subject.refused("unmatched", tried.to_owned()));
        }
        for own in own {
            let name = match own {
                BundleRule::Inline(rule) => {
                    rules.push(rule);
                    continue;
                }
                BundleRule::Named(name) => name,
            };
            match self.rules.iter().find(|rule| rule.name == *name) {
                Some(rule) if rules.iter().any(|known| known.name == rule.name) => {}
                Some(rule) => rules.push(rule),
                None => {
                    let known: Vec<&str> =
                        self.rules.iter().map(|rule| rule.name.as_str()).collect();
                    let tried = format!(
                        "the bundle names this rule, and the agent's policy has none of that name (it has: {})",
                        known.join(", ")
                    );
                    return Err(subject.refused(name, tried));
                }
            }
        }
        Ok(Demands { rules })
    }
}

/// What a bundle asks for besides the agent's policy: a rule of its own, or the name of one.
#[derive(Clone, Debug)]
pub enum BundleRule {
    /// A rule of the agent's policy.
    Named(String),
    /// A rule that stands in the bundle.
    Inline(Box<Rule>),
}

impl BundleRule {
    /// Reads what stands in a bundle: a word is a rule's name, anything else a rule without `sources`.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        const AT: &str = "the bundle's rule";
        match document(AT, text)? {
            Value::String(name) if !name.is_empty() => Ok(Self::Named(name)),
            rule @ Value::Object(_) => {
                if rule.get("sources").is_some() {
                    return Err(PolicyError::new(
                        AT,
                        "sources: the rule is about the bundle's own chart",
                    ));
                }
                let mut rule = Rule::read(AT, rule)?;
                // Nobody is to take it for a rule of the policy.
                rule.name = match rule.name.as_str() {
                    "" => "the bundle's own".to_owned(),
                    name => format!("the bundle's own {name}"),
                };
                Ok(Self::Inline(Box::new(rule)))
            }
            _ => Err(PolicyError::new(AT, "a name or a rule is expected")),
        }
    }
}

impl Rule {
    /// The rule's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn read(at: &str, value: Value) -> Result<Self, PolicyError> {
        let text: RuleText = typed(at, value)?;
        let sources = listed(&format!("{at}.sources"), text.sources)?;
        let sources = sources
            .iter()
            .enumerate()
            .map(|(index, pattern)| {
                let at = format!("{at}.sources[{index}]");
                SourcePattern::parse(pattern).map_err(|problem| PolicyError::new(at, problem))
            })
            .collect::<Result<_, _>>()?;
        if text.digests.is_none() && text.signed_by.is_none() {
            let problem = "it asks for nothing: digests or signedBy is expected";
            return Err(PolicyError::new(at, problem));
        }
        let digests = listed(&format!("{at}.digests"), text.digests)?;
        for (index, digest) in digests.iter().enumerate() {
            if !is_digest(digest) {
                let problem = "a digest is sha256: and 64 lower-case hexadecimal digits";
                return Err(PolicyError::new(format!("{at}.digests[{index}]"), problem));
            }
        }
        let signers = listed(&format!("{at}.signedBy"), text.signed_by)?;
        let signers = signers.into_iter().enumerate();
        let signers = signers
            .map(|(index, value)| Authority::read(&format!("{at}.signedBy[{index}]"), value))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            name: text.name,
            sources,
            digests,
            signers,
        })
    }

    /// Whether it is about one of these forms of a chart's addresses.
    fn is_about(&self, forms: &[&str]) -> bool {
        let matched = |source: &SourcePattern| forms.iter().any(|form| source.matches(form));
        self.sources.iter().any(matched)
    }

    /// Who vouches for the chart, by this rule.
    fn check(&self, subject: &Subject, evidence: &Evidence) -> Result<String, Unmet> {
        let unmet = |tried: Vec<String>| Unmet {
            rule: self.name.clone(),
            tried,
        };
        let mut vouched = Vec::new();
        if !self.digests.is_empty() {
            let found = [Some(&subject.archive), subject.manifest.as_ref()];
            let pinned = found
                .into_iter()
                .flatten()
                .find(|digest| self.digests.contains(digest));
            let Some(pinned) = pinned else {
                return Err(unmet(vec![format!(
                    "digest {} is expected, the archive is {}{}",
                    self.digests.join(" or "),
                    subject.archive,
                    match &subject.manifest {
                        Some(manifest) => format!(" and its manifest {manifest}"),
                        None => String::new(),
                    }
                )]));
            };
            vouched.push(format!("digest {pinned}"));
        }
        if !self.signers.is_empty() {
            let mut tried = Vec::new();
            let signed =
                self.signers
                    .iter()
                    .find_map(|signer| match signer.check(subject, evidence) {
                        Ok(who) => Some(who),
                        Err(problem) => {
                            tried.push(problem);
                            None
                        }
                    });
            match signed {
                Some(who) => vouched.push(who),
                None => return Err(unmet(tried)),
            }
        }
        Ok(vouched.join(", "))
    }
}

impl Authority {
    fn read(at: &str, value: Value) -> Result<Self, PolicyError> {
        let text: AuthorityText = typed(at, value)?;
        let kind = match (text.cosign, text.provenance) {
            (Some(cosign), None) => Kind::Cosign(cosign.signer().map_err(|(field, problem)| {
                PolicyError::new(format!("{at}.cosign{field}"), problem)
            })?),
            (None, Some(provenance)) => {
                let at = format!("{at}.provenance.keyring");
                let keyring = Keyring::parse(provenance.keyring.as_bytes())
                    .map_err(|error| PolicyError::new(at, error))?;
                Kind::Provenance(keyring)
            }
            _ => {
                let problem = "either cosign or provenance is expected";
                return Err(PolicyError::new(at, problem));
            }
        };
        let name = match (text.name.as_str(), &kind) {
            ("", Kind::Cosign(signer)) => signer.to_string(),
            ("", Kind::Provenance(_)) => "a key of the keyring".to_owned(),
            (name, Kind::Cosign(signer)) => format!("\"{name}\" ({signer})"),
            (name, Kind::Provenance(_)) => format!("\"{name}\""),
        };
        Ok(Self { name, kind })
    }

    /// Who signed, or why this signer is not believed to have.
    fn check(&self, subject: &Subject, evidence: &Evidence) -> Result<String, String> {
        let refused = |what: &str, problem: &dyn ToString| {
            format!(
                "{what} of {} is expected: {}",
                self.name,
                problem.to_string()
            )
        };
        match &self.kind {
            Kind::Cosign(signer) => {
                let Some(digest) = subject.signed_digest() else {
                    let problem = "only charts from registries have them";
                    return Err(refused("a cosign signature", &problem));
                };
                let repository = subject.repository.as_deref().unwrap_or_default();
                let signed = signer.check(digest, repository, evidence);
                signed
                    .map(|who| format!("{}, {who}", self.name))
                    .map_err(|problems| {
                        let mut text = format!("found {}", evidence.cosign_in_words());
                        for problem in problems {
                            text += &format!("; {problem}");
                        }
                        refused("a cosign signature", &text)
                    })
            }
            Kind::Provenance(keyring) => {
                let Some(file) = &evidence.provenance else {
                    let problem = "there is no provenance file";
                    return Err(refused("a provenance file", &problem));
                };
                let digest = subject.archive.trim_start_matches("sha256:");
                let signed = provenance::verify(file, &subject.file_name, digest, keyring);
                signed
                    .map(|signed| format!("{} by provenance file, {}", self.name, signed.signer))
                    .map_err(|problem| refused("a provenance file", &problem))
            }
        }
    }
}

impl CosignText {
    fn signer(self) -> Result<Signer, (&'static str, String)> {
        let root = match self.trusted_root {
            None => None,
            Some(Value::String(text)) => Some(text),
            Some(value) => Some(value.to_string()),
        };
        let signed_as = self.signed_as;
        limited("", signed_as.len()).map_err(|error| (".signedAs", error.problem))?;
        let signed_as = signed_as
            .iter()
            .map(|pattern| {
                Glob::as_documented(pattern, '/').map_err(|error| (".signedAs", error.to_string()))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let has_log = self.transparency_log;
        let log = |default: bool| has_log.map_or(default, |asked| asked == Asked::Required);
        if let Some(pem) = self.public_key {
            if self.issuer.is_some() || self.identity.is_some() || self.identity_reg_exp.is_some() {
                return Err(("", "publicKey and identity exclude each other".to_owned()));
            }
            if self.certificate_transparency.is_some() {
                let problem = "a signature by key has no certificate";
                return Err((".certificateTransparency", problem.to_owned()));
            }
            let log = log(root.is_some());
            let root = root.filter(|_| log);
            if log && root.is_none() {
                let problem = "required, and trustedRoot does not say which log";
                return Err((".transparencyLog", problem.to_owned()));
            }
            let key = PublicKey::new(&pem, root.as_deref())?;
            return Ok(Signer::key(key, signed_as));
        }
        let Some(root) = root else {
            let problem = "publicKey, or identity with issuer and trustedRoot, is expected";
            return Err(("", problem.to_owned()));
        };
        let ct = self.certificate_transparency;
        let keyless = Keyless::new(
            self.issuer.ok_or((".issuer", "it is missing".to_owned()))?,
            self.identity,
            self.identity_reg_exp,
            &root,
            log(true),
            ct.is_none_or(|asked| asked == Asked::Required),
        )?;
        Ok(Signer::keyless(keyless, signed_as))
    }
}

/// What a chart needs.
#[derive(Clone, Debug)]
pub struct Demands<'a> {
    rules: Vec<&'a Rule>,
}

impl Demands<'_> {
    /// Whether nothing is asked for.
    pub fn are_none(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether signatures in the registry are asked for.
    pub fn cosign(&self) -> bool {
        self.any(|kind| matches!(kind, Kind::Cosign(_)))
    }

    /// Whether a provenance file is asked for.
    pub fn provenance(&self) -> bool {
        self.any(|kind| matches!(kind, Kind::Provenance(_)))
    }

    fn any(&self, is_asked: impl Fn(&Kind) -> bool) -> bool {
        let mut signers = self.rules.iter().flat_map(|rule| &rule.signers);
        signers.any(|signer| is_asked(&signer.kind))
    }

    /// Whether the chart has what it needs.
    ///
    /// # Errors
    /// What is missing, for every rule that is not satisfied.
    pub fn check(&self, subject: &Subject, evidence: &Evidence) -> Result<Verified, Refusal> {
        let mut verified = Verified::default();
        let mut unmet = Vec::new();
        for rule in &self.rules {
            match rule.check(subject, evidence) {
                Ok(by) => verified.by.push((rule.name.clone(), by)),
                Err(missing) => unmet.push(missing),
            }
        }
        match unmet.is_empty() {
            true => Ok(verified),
            false => Err(Refusal {
                chart: subject.in_words(),
                unmet,
            }),
        }
    }
}

/// Who vouched for a chart: each rule with the digest or signer that satisfied it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Rule and signer.
    pub by: Vec<(String, String)>,
}

impl std::fmt::Display for Verified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rules: Vec<String> = self
            .by
            .iter()
            .map(|(rule, by)| format!("rule \"{rule}\": {by}"))
            .collect();
        f.write_str(&rules.join("; "))
    }
}

impl Subject {
    fn in_words(&self) -> String {
        let address = match self.shown.as_str() {
            "" => {
                let forms = self.addresses.last().and_then(|last| last.forms().first());
                forms.map_or("the chart", String::as_str)
            }
            shown => shown,
        };
        match &self.manifest {
            Some(manifest) => format!("{address} (manifest {manifest})"),
            None => format!("{address} ({})", self.archive),
        }
    }

    /// A refusal of this chart by one rule.
    pub fn refused(&self, rule: &str, problem: String) -> Refusal {
        Refusal {
            chart: self.in_words(),
            unmet: vec![Unmet {
                rule: rule.to_owned(),
                tried: vec![problem],
            }],
        }
    }
}

/// Whether a text is a SHA-256 as it is always written.
fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64
            && hex
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

fn document(at: &str, text: &str) -> Result<Value, PolicyError> {
    if text.len() > MAX_POLICY_BYTES {
        return Err(PolicyError::new(
            at,
            format!("it has more than {MAX_POLICY_BYTES} bytes"),
        ));
    }
    // What stands in a second document would be passed over.
    let documents = golib::yaml::decode_all(text.as_bytes());
    match documents
        .map_err(|error| PolicyError::new(at, error))?
        .len()
    {
        0 | 1 => {}
        _ => return Err(PolicyError::new(at, "it has more than one document")),
    }
    golib::yaml::decode_strict(text.as_bytes()).map_err(|error| PolicyError::new(at, error))
}

fn typed<T: serde::de::DeserializeOwned>(at: &str, value: Value) -> Result<T, PolicyError> {
    serde_json::from_value(value).map_err(|error| PolicyError::new(at, error))
}

fn listed<T>(at: &str, list: Option<Vec<T>>) -> Result<Vec<T>, PolicyError> {
    match list {
        // An empty list would be satisfied by anything.
        Some(list) if list.is_empty() => Err(PolicyError::new(at, "it is empty")),
        list => {
            let list = list.unwrap_or_default();
            limited(at, list.len())?;
            Ok(list)
        }
    }
}

fn limited(at: &str, entries: usize) -> Result<(), PolicyError> {
    match entries {
        0..=MAX_ENTRIES => Ok(()),
        _ => Err(PolicyError::new(
            at,
            format!("it has more than {MAX_ENTRIES} entries"),
        )),
    }
}
