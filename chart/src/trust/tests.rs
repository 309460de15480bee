//! Certificates that are judged at one time, without a connection.

use std::slice::from_ref;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rstest::rstest;
use rustls::CertificateError;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, UnixTime};

use super::*;

const NOW: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000)); // in 2027
const NAME: &str = "upstream.example";

fn params(is_ca: bool) -> CertificateParams {
    let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2040, 1, 1);
    if is_ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    params
}

fn self_signed(params: CertificateParams) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().der().clone()
}

/// An authority, and a server's certificate by it.
fn signed() -> [CertificateDer<'static>; 2] {
    let (key, server) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let authority = params(true);
    let issuer = Issuer::from_params(&authority, &key);
    let issued = params(false).signed_by(&server, &issuer).unwrap();
    let authority = authority.self_signed(&key).unwrap();
    [authority.der().clone(), issued.der().clone()]
}

fn judge(
    trusted: &[CertificateDer<'_>],
    shown: &CertificateDer<'_>,
    name: &'static str,
) -> Result<(), String> {
    let verifier = Verifier::Authorities(Authorities::new(trusted));
    let name = name.try_into().unwrap();
    match verifier.verify_server_cert(shown, &[], &name, &[], NOW) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InvalidCertificate(error)) => Err(match error {
            CertificateError::UnknownIssuer => "unknown issuer".to_owned(),
            CertificateError::ExpiredContext { .. } => "expired".to_owned(),
            CertificateError::NotValidYetContext { .. } => "not valid yet".to_owned(),
            CertificateError::NotValidForNameContext { .. } => "other name".to_owned(),
            CertificateError::InvalidPurposeContext { .. } => "other purpose".to_owned(),
            error => error.to_string(),
        }),
        Err(error) => Err(error.to_string()),
    }
}

fn refused(why: &str) -> Result<(), String> {
    Err(why.to_owned())
}

#[rstest]
#[case::that_is_a_ca(true)]
#[case::that_is_no_ca(false)]
fn a_self_signed_certificate_holds_where_it_is_given(#[case] is_ca: bool) {
    let server = self_signed(params(is_ca));
    let given = [server.clone()];
    assert_eq!(judge(&given, &server, NAME), Ok(()));
    assert_eq!(
        judge(&given, &server, "other.example"),
        refused("other name")
    );
    // Of the same name, from somebody else.
    let other = self_signed(params(is_ca));
    assert!(judge(&given, &other, NAME).is_err());
    assert!(judge(&[], &server, NAME).is_err());
    assert!(judge(&signed()[..1], &server, NAME).is_err());
}

#[rstest]
#[case::of_a_ca(true)]
#[case::of_no_ca(false)]
fn a_trusted_certificate_is_held_to_its_dates(#[case] is_ca: bool) {
    let mut past = params(is_ca);
    past.not_after = rcgen::date_time_ymd(2026, 1, 1);
    let past = self_signed(past);
    assert_eq!(judge(from_ref(&past), &past, NAME), refused("expired"));
    let mut future = params(is_ca);
    future.not_before = rcgen::date_time_ymd(2030, 1, 1);
    let future = self_signed(future);
    assert_eq!(
        judge(from_ref(&future), &future, NAME),
        refused("not valid yet")
    );
}

#[test]
fn a_certificate_by_an_authority_that_is_not_there_holds_where_it_is_given_itself() {
    let [authority, server] = signed();
    assert_eq!(judge(from_ref(&server), &server, NAME), Ok(()));
    assert_eq!(judge(&[authority], &server, NAME), Ok(()));
    assert_eq!(judge(&[], &server, NAME), refused("unknown issuer"));
    let mut client = params(false);
    client.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let client = self_signed(client);
    assert_eq!(
        judge(from_ref(&client), &client, NAME),
        refused("other purpose")
    );
}

#[test]
fn the_dates_of_an_authority_do_not_count() {
    let (key, server) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut past = params(true);
    past.not_after = rcgen::date_time_ymd(2026, 1, 1);
    let issuer = Issuer::from_params(&past, &key);
    let issued = params(false).signed_by(&server, &issuer).unwrap();
    let authority = past.self_signed(&key).unwrap();
    assert_eq!(judge(from_ref(authority.der()), issued.der(), NAME), Ok(()));
}

/// rustls has another word for it, that nobody knows.
#[test]
fn an_untrusted_ca_certificate_is_an_unknown_issuer() {
    let server = self_signed(params(true));
    assert_eq!(judge(&[], &server, NAME), refused("unknown issuer"));
}

#[test]
fn a_root_that_cannot_be_read_takes_no_other_with_it() {
    let [authority, server] = signed();
    let bad = CertificateDer::from(vec![0, 0, 0]);
    let given = [bad.clone(), authority, bad];
    assert_eq!(judge(&given, &server, NAME), Ok(()));
}

#[rstest]
#[case::no_base64("-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n")]
#[case::no_certificate("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")]
#[case::cut_off("-----BEGIN CERTIFICATE-----\nMIIB\n")]
#[case::cut_off_in_its_first_line("-----BEGIN CERT\n")]
#[case::another_end("-----BEGIN CERTIFICATE-----\nMIIB\n-----END X509 CRL-----\n")]
#[case::something_else("-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n")]
#[case::a_text("somebody's notes\n")]
fn a_malformed_block_takes_no_other_with_it(#[case] bad: &str) {
    let good = signed();
    let text = to_pem(&good);
    for pem in [
        format!("{bad}{text}"),
        format!("{text}{bad}"),
        format!("{bad}{text}{bad}{text}{bad}"),
        format!("{bad}{text}").replace('\n', "\r\n"),
    ] {
        let found = certificates(pem.as_bytes());
        let found: Vec<_> = found.iter().filter(|found| good.contains(found)).collect();
        assert_eq!(
            found.len(),
            pem.matches(&text[..99]).count().max(1) * 2,
            "{pem}"
        );
    }
    assert!(certificates(bad.as_bytes()).len() <= 1);
}

#[test]
fn authorities_of_a_file_are_renewed_and_kept_while_there_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.crt");
    let name = NAME.try_into().unwrap();
    assert!(AuthorityFile::open(&path).is_err());
    std::fs::write(&path, "nothing").unwrap();
    assert!(AuthorityFile::open(&path).is_err());
    let [first, second] = [(); 2].map(|()| self_signed(params(true)));
    std::fs::write(&path, to_pem(from_ref(&first))).unwrap();
    let hourly = AuthorityFile::open_every(path.clone(), Duration::from_secs(3600)).unwrap();
    let hourly = Verifier::File(hourly);
    let always = AuthorityFile::open_every(path.clone(), Duration::ZERO).unwrap();
    let always = Verifier::File(always);
    let holds = |verifier: &Verifier, shown: &CertificateDer<'_>| {
        let verdict = verifier.verify_server_cert(shown, &[], &name, &[], NOW);
        verdict.is_ok()
    };
    assert!(holds(&always, &first) && !holds(&always, &second));
    std::fs::write(&path, to_pem(from_ref(&second))).unwrap();
    assert!(!holds(&always, &first) && holds(&always, &second));
    assert!(holds(&hourly, &first) && !holds(&hourly, &second));
    std::fs::write(&path, "nothing").unwrap();
    assert!(holds(&always, &second));
    std::fs::remove_file(&path).unwrap();
    assert!(holds(&always, &second));
}
