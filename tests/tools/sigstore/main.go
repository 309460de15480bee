// A Sigstore to throw away: an authority that certifies whatever identity a token claims, a certificate log and a transparency log, all
// with keys of one run. cosign signs against it as against the public one, so that what it writes can be recorded without that.
//
//	sigstore serve ADDRESS TRUSTED-ROOT        writes the trusted root to that file, and serves until it is killed
//	sigstore token IDENTITY ISSUER             a token for cosign
//	sigstore config ADDRESS all|log|nothing    a signing configuration for cosign
//	sigstore dump REGISTRY REPOSITORY DIGEST   the signatures that a registry holds, as a specimen
package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

const origin = "log.test.invalid - 1"

type sigstore struct {
	lock     sync.Mutex
	ca       *ecdsa.PrivateKey
	root     *x509.Certificate
	ct, tlog *ecdsa.PrivateKey
	leaves   [][]byte
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func key() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func spki(key *ecdsa.PrivateKey) []byte { return must(x509.MarshalPKIXPublicKey(key.Public())) }

func id(key *ecdsa.PrivateKey) []byte {
	sum := sha256.Sum256(spki(key))
	return sum[:]
}

func sign(key *ecdsa.PrivateKey, data []byte) []byte {
	sum := sha256.Sum256(data)
	return must(key.Sign(rand.Reader, sum[:], crypto.SHA256))
}

// canonical is JSON with keys in order and without blanks; nothing in it needs more.
func canonical(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		log.Fatal(err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func newSigstore() *sigstore {
	ca := key()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "throwaway", Organization: []string{"test.invalid"}},
		NotBefore:             time.Now().Add(-24 * time.Hour),
		NotAfter:              time.Now().Add(100 * 365 * 24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, ca.Public(), ca))
	return &sigstore{ca: ca, root: must(x509.ParseCertificate(der)), ct: key(), tlog: key()}
}

func (s *sigstore) trustedRoot() []byte {
	validity := map[string]any{"start": time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)}
	instance := func(name string, key *ecdsa.PrivateKey) []any {
		return []any{map[string]any{
			"baseUrl":       "https://" + name + ".test.invalid",
			"hashAlgorithm": "SHA2_256",
			"publicKey":     map[string]any{"rawBytes": spki(key), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": validity},
			"logId":         map[string]any{"keyId": id(key)},
		}}
	}
	return must(json.MarshalIndent(map[string]any{
		"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
		"tlogs":     instance("log", s.tlog),
		"ctlogs":    instance("ct", s.ct),
		"certificateAuthorities": []any{map[string]any{
			"subject":   map[string]any{"organization": "test.invalid", "commonName": "throwaway"},
			"uri":       "https://ca.test.invalid",
			"certChain": map[string]any{"certificates": []any{map[string]any{"rawBytes": s.root.Raw}}},
			"validFor":  validity,
		}},
		"timestampAuthorities": []any{},
	}, "", " "))
}

// certify makes a certificate for the identity of a token, which is believed.
func (s *sigstore) certify(token string, public any) []byte {
	var claims struct{ Iss, Sub, Email string }
	parts := strings.Split(token, ".")
	if len(parts) < 2 {
		log.Fatal("no token")
	}
	if err := json.Unmarshal(must(base64.RawURLEncoding.DecodeString(parts[1])), &claims); err != nil {
		log.Fatal(err)
	}
	begins := time.Now().Add(-time.Minute)
	oid := func(last int) asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, last} }
	template := &x509.Certificate{
		SerialNumber: must(rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))),
		NotBefore:    begins,
		NotAfter:     begins.Add(10 * time.Minute),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		ExtraExtensions: []pkix.Extension{
			{Id: oid(1), Value: []byte(claims.Iss)},
			{Id: oid(8), Value: must(asn1.MarshalWithParams(claims.Iss, "utf8"))},
		},
	}
	if claims.Email != "" {
		template.EmailAddresses = []string{claims.Email}
	} else {
		template.URIs = []*url.URL{must(url.Parse(claims.Sub))}
	}
	// What the certificate log signs is the certificate without its own signature.
	der := must(x509.CreateCertificate(rand.Reader, template, s.root, public, s.ca))
	tbs := must(x509.ParseCertificate(der)).RawTBSCertificate
	issuer := sha256.Sum256(s.root.RawSubjectPublicKeyInfo)
	stamp := binary.BigEndian.AppendUint64(nil, uint64(begins.UnixMilli()))
	signed := append([]byte{0, 0}, stamp...)
	signed = append(signed, 0, 1)
	signed = append(signed, issuer[:]...)
	signed = append(signed, byte(len(tbs)>>16), byte(len(tbs)>>8), byte(len(tbs)))
	signed = append(signed, tbs...)
	signed = append(signed, 0, 0)
	signature := sign(s.ct, signed)
	sct := append([]byte{0}, id(s.ct)...)
	sct = append(sct, stamp...)
	sct = append(sct, 0, 0, 4, 3)
	sct = binary.BigEndian.AppendUint16(sct, uint16(len(signature)))
	sct = append(sct, signature...)
	list := binary.BigEndian.AppendUint16(nil, uint16(len(sct)+2))
	list = binary.BigEndian.AppendUint16(list, uint16(len(sct)))
	list = append(list, sct...)
	template.ExtraExtensions = append(template.ExtraExtensions, pkix.Extension{
		Id:    asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 4, 2},
		Value: must(asn1.Marshal(list)),
	})
	der = must(x509.CreateCertificate(rand.Reader, template, s.root, public, s.ca))
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (s *sigstore) rootPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.root.Raw})
}

func hashLeaf(body []byte) []byte {
	sum := sha256.Sum256(append([]byte{0}, body...))
	return sum[:]
}

func hashNode(left, right []byte) []byte {
	sum := sha256.Sum256(append(append([]byte{1}, left...), right...))
	return sum[:]
}

// split is the largest power of two below n.
func split(n int) int {
	k := 1
	for k*2 < n {
		k *= 2
	}
	return k
}

func treeHash(leaves [][]byte) []byte {
	if len(leaves) == 1 {
		return leaves[0]
	}
	k := split(len(leaves))
	return hashNode(treeHash(leaves[:k]), treeHash(leaves[k:]))
}

func path(leaves [][]byte, at int) [][]byte {
	if len(leaves) == 1 {
		return nil
	}
	k := split(len(leaves))
	if at < k {
		return append(path(leaves[:k], at), treeHash(leaves[k:]))
	}
	return append(path(leaves[k:], at-k), treeHash(leaves[:k]))
}

// record is the entry as the log keeps it.
func record(proposed map[string]any) []byte {
	if proposed["kind"] != "dsse" {
		return canonical(proposed)
	}
	content := proposed["spec"].(map[string]any)["proposedContent"].(map[string]any)
	text := content["envelope"].(string)
	var envelope struct {
		Payload    []byte
		Signatures []struct{ Sig string }
	}
	if err := json.Unmarshal([]byte(text), &envelope); err != nil {
		log.Fatal(err)
	}
	hash := func(data []byte) map[string]any {
		sum := sha256.Sum256(data)
		return map[string]any{"algorithm": "sha256", "value": hex.EncodeToString(sum[:])}
	}
	return canonical(map[string]any{"apiVersion": "0.0.1", "kind": "dsse", "spec": map[string]any{
		"envelopeHash": hash([]byte(text)),
		"payloadHash":  hash(envelope.Payload),
		"signatures": []any{map[string]any{
			"signature": envelope.Signatures[0].Sig,
			"verifier":  content["verifiers"].([]any)[0],
		}},
	}})
}

func (s *sigstore) add(proposed map[string]any) (string, map[string]any) {
	s.lock.Lock()
	defer s.lock.Unlock()
	body := record(proposed)
	leaf := hashLeaf(body)
	at := len(s.leaves)
	s.leaves = append(s.leaves, leaf)
	root := treeHash(s.leaves)
	hashes := []string{}
	for _, hash := range path(s.leaves, at) {
		hashes = append(hashes, hex.EncodeToString(hash))
	}
	note := fmt.Sprintf("%s\n%d\n%s\n", origin, len(s.leaves), base64.StdEncoding.EncodeToString(root))
	signature := append(id(s.tlog)[:4:4], sign(s.tlog, []byte(note))...)
	checkpoint := fmt.Sprintf("%s\n— %s %s\n", note, "log.test.invalid", base64.StdEncoding.EncodeToString(signature))
	entry := map[string]any{
		"body":           base64.StdEncoding.EncodeToString(body),
		"integratedTime": time.Now().Unix(),
		"logID":          hex.EncodeToString(id(s.tlog)),
		"logIndex":       at,
	}
	promise := sign(s.tlog, canonical(entry))
	entry["verification"] = map[string]any{
		"signedEntryTimestamp": base64.StdEncoding.EncodeToString(promise),
		"inclusionProof": map[string]any{
			"checkpoint": checkpoint, "hashes": hashes, "logIndex": at,
			"rootHash": hex.EncodeToString(root), "treeSize": len(s.leaves),
		},
	}
	return "0000000000000001" + hex.EncodeToString(leaf), entry
}

func (s *sigstore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch r.URL.Path {
	case "/api/v2/signingCert":
		var request struct {
			PublicKeyRequest struct{ PublicKey struct{ Content string } }
		}
		if err := json.Unmarshal(body, &request); err != nil {
			log.Fatal(err)
		}
		block, _ := pem.Decode([]byte(request.PublicKeyRequest.PublicKey.Content))
		certificate := s.certify(token, must(x509.ParsePKIXPublicKey(block.Bytes)))
		w.Write(canonical(map[string]any{"signedCertificateEmbeddedSct": map[string]any{
			"chain": map[string]any{"certificates": []string{string(certificate), string(s.rootPEM())}},
		}}))
	case "/api/v1/signingCert":
		var request struct{ PublicKey struct{ Content []byte } }
		if err := json.Unmarshal(body, &request); err != nil {
			log.Fatal(err)
		}
		certificate := s.certify(token, must(x509.ParsePKIXPublicKey(request.PublicKey.Content)))
		w.Header().Set("Content-Type", "application/pem-certificate-chain")
		w.WriteHeader(http.StatusCreated)
		w.Write(append(certificate, s.rootPEM()...))
	case "/api/v1/log/entries":
		var proposed map[string]any
		if err := json.Unmarshal(body, &proposed); err != nil {
			log.Fatal(err)
		}
		name, entry := s.add(proposed)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("ETag", name)
		w.Header().Set("Location", "/api/v1/log/entries/"+name)
		w.WriteHeader(http.StatusCreated)
		w.Write(canonical(map[string]any{name: entry}))
	case "/api/v1/log/publicKey":
		w.Write(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki(s.tlog)}))
	default:
		log.Print(r.Method, " ", r.URL.Path)
		http.NotFound(w, r)
	}
}

// token is one that claims an identity: an address of mail, or a URI.
func token(identity, issuer string) string {
	claims := map[string]any{"iss": issuer, "sub": identity, "aud": "sigstore", "iat": 1600000000, "exp": 4000000000}
	if strings.Contains(identity, "@") && !strings.Contains(identity, "://") {
		claims["email"], claims["email_verified"] = identity, true
	}
	part := func(value any) string { return base64.RawURLEncoding.EncodeToString(canonical(value)) }
	return part(map[string]any{"alg": "RS256", "typ": "JWT"}) + "." + part(claims) + ".eA"
}

// config is what tells cosign to use this Sigstore: all of it, its log alone, or nothing.
func config(address, parts string) []byte {
	service := []any{map[string]any{
		"url": "http://" + address, "majorApiVersion": 1, "operator": "test.invalid",
		"validFor": map[string]any{"start": "2020-01-01T00:00:00Z"},
	}}
	config := map[string]any{"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json"}
	if parts == "all" {
		config["caUrls"] = service
	}
	if parts != "nothing" {
		config["rekorTlogUrls"] = service
		config["rekorTlogConfig"] = map[string]any{"selector": "ANY"}
		config["tsaConfig"] = map[string]any{"selector": "ANY"}
	}
	return canonical(config)
}

// get reads from a registry; nil where there is nothing.
func get(address string) []byte {
	request := must(http.NewRequest("GET", address, nil))
	for _, kind := range []string{"manifest", "index"} {
		request.Header.Add("Accept", "application/vnd.oci.image."+kind+".v1+json")
	}
	answer := must(http.DefaultClient.Do(request))
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil
	}
	return must(io.ReadAll(answer.Body))
}

type manifest struct {
	Layers []struct {
		Digest      string
		Annotations map[string]string
	}
	Manifests []struct{ Digest string }
}

func parsed(data []byte) (found manifest) {
	if data != nil {
		if err := json.Unmarshal(data, &found); err != nil {
			log.Fatal(err)
		}
	}
	return found
}

// dump is what a repository holds beside a manifest to vouch for it.
func dump(registry, repository, digest string) []byte {
	base := "http://" + registry + "/v2/" + repository
	name := strings.Replace(digest, ":", "-", 1)
	attached, bundles := []any{}, []string{}
	for _, layer := range parsed(get(base + "/manifests/" + name + ".sig")).Layers {
		payload := string(get(base + "/blobs/" + layer.Digest))
		attached = append(attached, map[string]any{"payload": payload, "annotations": layer.Annotations})
	}
	for _, referrer := range parsed(get(base + "/manifests/" + name)).Manifests {
		for _, layer := range parsed(get(base + "/manifests/" + referrer.Digest)).Layers {
			bundles = append(bundles, string(get(base+"/blobs/"+layer.Digest)))
		}
	}
	var out bytes.Buffer
	found := map[string]any{"repository": registry + "/" + repository, "manifest": digest, "attached": attached, "bundles": bundles}
	if err := json.Indent(&out, canonical(found), "", " "); err != nil {
		log.Fatal(err)
	}
	return append(out.Bytes(), '\n')
}

func main() {
	arguments := os.Args[2:]
	switch os.Args[1] {
	case "serve":
		s := newSigstore()
		if err := os.WriteFile(arguments[1], s.trustedRoot(), 0o644); err != nil {
			log.Fatal(err)
		}
		log.Fatal(http.ListenAndServe(arguments[0], s))
	case "token":
		fmt.Print(token(arguments[0], arguments[1]))
	case "config":
		os.Stdout.Write(config(arguments[0], arguments[1]))
	case "dump":
		os.Stdout.Write(dump(arguments[0], arguments[1], arguments[2]))
	}
}
