//! Private keys that Go can do more with than we can.

use crate::render_with;
use templating::{Error, Limits, Value};

const RSA_1024: &str = "\
-----BEGIN RSA PRIVATE KEY-----
MIICXgIBAAKBgQDFUTALwESH/HBuBFH32HszUlTV7/vo5HNMSr/4xxt9OH0x4Cwg
gRh4YQ/TKvi5HZE3K00jNx2rKLt+LWUiYb5achGphazApLgjSiicUL4uqRbM5UxO
+EI3EbRLoRy8OLt5HWGD/s3nM8NGKkGwvqX2JIZjcOY2QvkQx+xHBbe7AQIDAQAB
AoGBAI8invzXQ59180ULoz5sbqrDHcF37kB6gF0mmG3qWbmTodXtbXVC0LJ6jpU7
xePbW/0uTy2tjLsduC0G1yeCyibiAdZ7XhxvWSohqKoW47DeTL4pHuJ5H0PTtExC
MXIYz51JKqfJI4KZWw5ndskpw8dYkUsu+Si6vrr83+zPJKflAkEA54fv5jlMI0Oj
lhVtURb2woJRzt77uWVl5Q8BuKTO6YlD3+i5x2qjO+ZU3nVwFHfDKwLdpOyBTDYC
Y/XNr4CL+wJBANormH/rbhnEW83BmtZq2bLYPbDIaAPJfF/T58RZQOLHk763/0uy
niHo3akDeHm7xr+iW4TiExHUOBZaDUd0CDMCQEPjB+RpSHnOi1imT7dHFHNT4sjV
eNmTcZ0IGWkaadDv/obYpiBilBosHxZbONHHi+JApNyGvCKsc2b726Np/aECQQC+
Pl3Qzj9IAM388eJPLwV+ysmgqmDpTH1EIshrk1jdaCMRn+ji3XK/JwyDIR+hJ3j8
Clu72FfAqEnwU75YnHm5AkEAjIwkw2I9ih9+sKUg4On0gTXkHhvtHc9F+Yt0AbnU
3/p0Khp+Q1OTGCtxcIbe1ZzhKOUvw86iiZsULzV2Fqv5tQ==
-----END RSA PRIVATE KEY-----
";

const P224: &str = "\
-----BEGIN EC PRIVATE KEY-----
MGgCAQEEHNgKee/XcwdPBTIuiR1CCum3vQvz8JkUKkjWkaKgBwYFK4EEACGhPAM6
AASVy/fj6iT/7WQh+BxfJUmGFBXNLA08sn1gs210ypdE90K62oGyC8B1o/NFta+e
9x/sMA9UAy/Q+g==
-----END EC PRIVATE KEY-----
";

fn signed_by(key: &str) -> Result<String, Error> {
    let data = serde_json::json!({ "key": key });
    render_with(
        r#"{{ (genCAWithKey "ca" 1 .key).Key }}"#,
        Value::from(&data),
        Limits::default(),
    )
}

#[test]
fn keys_that_only_go_signs_with_are_refused() {
    for (key, problem) in [
        (RSA_1024, "keys of RSA with 1024 bits cannot be used here"),
        (P224, "keys of the curve P224 cannot be used here"),
    ] {
        let error = signed_by(key).expect_err(problem).to_string();
        let wanted = format!("error calling genCAWithKey: error creating certificate: {problem}");
        assert!(error.ends_with(&wanted), "{error}");
    }
}

/// A certificate needs no more of its own key than the public part.
#[test]
fn a_short_key_is_certified_by_another_one() {
    let data = serde_json::json!({ "key": RSA_1024 });
    let template = r#"{{ $ca := genCAWithKey "ca" 1 (genPrivateKey "ed25519") -}}
{{ (genSignedCertWithKey "x" nil nil 1 $ca .key).Key }}"#;
    let key = render_with(template, Value::from(&data), Limits::default());
    assert_eq!(key.expect("the authority's key signs"), RSA_1024);
}

/// Go computes for minutes.
#[test]
fn a_long_prime_without_its_inverse_is_too_much_work() {
    let number = |bytes: usize| {
        let length = u16::try_from(bytes).expect("it is short").to_be_bytes();
        [&[2, 0x82], &length[..], &vec![0x7F; bytes]].concat()
    };
    let small: &[u8] = &[2, 1, 3];
    let (modulus, prime) = (number(6000), number(5000));
    let fields = [&[2, 1, 0], &modulus[..], small, small, &prime, small].concat();
    let length = u16::try_from(fields.len()).expect("it is short");
    let key = [&[0x30, 0x82], &length.to_be_bytes()[..], &fields].concat();
    let label = "RSA PRIVATE KEY-----";
    let encoded = golib::base64::encode(key);
    let pem = format!("-----BEGIN {label}\n{encoded}\n-----END {label}\n");
    let error = signed_by(&pem).expect_err("it is too much work");
    assert!(error.is_limit(), "{error}");
}
