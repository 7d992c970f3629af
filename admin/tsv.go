package admin

import (
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Kyoto Tycoon's map of strings as text:
//
//	key TAB value LF
//	…
//
// Both columns are encoded alike: not at all, or by one of these, named by the attribute colenc of the media type.
const (
	plain   = byte(0)
	base64B = byte('B') // standard alphabet, padded
	quotedQ = byte('Q') // quoted-printable: =XX; read, never written
	urlU    = byte('U') // %xx, lower case, all but A-Z a-z 0-9 _ - . ~
)

const (
	tsvType  = "text/tab-separated-values"
	formType = "application/x-www-form-urlencoded"
)

// maxPlain is the longest key or value that is sent plain, in bytes.
const maxPlain = 255

// decodeTSV adds the records of body to m; of equal keys the last counts. It never fails: a line without TAB is no record,
// and what cannot be decoded is left out or kept as it is. CR before LF and a missing last LF are tolerated; a plain value may hold further TABs.
func decodeTSV(m map[string]string, body string, codec byte) {
	for line := range strings.SplitSeq(body, "\n") {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\r"), "\t")
		if ok {
			m[decodeColumn(key, codec)] = decodeColumn(value, codec)
		}
	}
}

func decodeColumn(s string, codec byte) string {
	switch codec {
	case base64B:
		return decodeBase64(s)
	case quotedQ:
		return unescape(s, '=')
	case urlU:
		return unescape(s, '%')
	}
	return s
}

// decodeBase64 reads up to the first padding, skipping foreign bytes; incomplete last bits are dropped.
func decodeBase64(s string) string {
	s, _, _ = strings.Cut(s, "=")
	s = strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z', 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '+', r == '/':
			return r
		}
		return -1
	}, s)
	if len(s)%4 == 1 {
		s = s[:len(s)-1]
	}
	out, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil {
		panic(err) // only the alphabet is left, in a possible length
	}
	return string(out)
}

// unescape resolves mark and two hex digits. Control bytes are dropped, and so are blanks where mark is '%', whose '+' is
// a blank. An escape that is none stays.
func unescape(s string, mark byte) string {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == mark && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			out = append(out, unhex(s[i+1])<<4|unhex(s[i+2]))
			i += 2
		case mark == '%' && c == '+':
			out = append(out, ' ')
		case c < ' ' || c == 0x7f || mark == '%' && c == ' ':
		default:
			out = append(out, c)
		}
	}
	return string(out)
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

// decodeForm adds the pairs of a query string or form to m; of equal keys the last counts. It never fails.
func decodeForm(m map[string]string, form string) {
	for pair := range strings.FieldsFuncSeq(form, func(r rune) bool { return r == '&' || r == ';' }) {
		pair = strings.TrimLeft(pair, " \t\r\n")
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		m[unescape(key, '%')] = unescape(value, '%')
	}
}

// mediaType splits a Content-Type into the type, in lower case, and the codec of its columns. A codec that we do not know is plain.
func mediaType(header string) (kind string, codec byte) {
	kind, rest, _ := strings.Cut(header, ";")
	for attribute := range strings.SplitSeq(rest, ";") {
		key, value, _ := strings.Cut(attribute, "=")
		if !strings.EqualFold(strings.TrimSpace(key), "colenc") {
			continue
		}
		switch strings.ToUpper(strings.Trim(strings.TrimSpace(value), `"`)) {
		case "B":
			codec = base64B
		case "Q":
			codec = quotedQ
		case "U":
			codec = urlU
		}
	}
	return strings.ToLower(strings.TrimSpace(kind)), codec
}

// chooseCodec is Kyoto Tycoon's choice: plain unless a key or value is over 255 bytes or holds a control byte, else
// what it estimates to be shorter, base64 or percent-encoding. Only the first 255 bytes of each are looked at.
func chooseCodec(m map[string]string) byte {
	encode, base64Size, urlSize := false, 0, 0
	look := func(s string) {
		if len(s) > maxPlain {
			s, encode = s[:maxPlain], true
		}
		base64Size += len(s)*6/4 + 3
		for i := range len(s) {
			switch c := s[i]; {
			case isPlainURL(c), strings.IndexByte("!*'()", c) >= 0:
				urlSize++
			default:
				urlSize += 3
				encode = encode || c < ' ' || c == 0x7f
			}
		}
	}
	for key, value := range m {
		look(key)
		look(value)
	}
	switch {
	case !encode:
		return plain
	case base64Size < urlSize:
		return base64B
	}
	return urlU
}

func isPlainURL(c byte) bool {
	return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("_-.~", c) >= 0
}

// appendTSV appends the records of m, sorted by the bytes of the encoded key.
func appendTSV(dst []byte, m map[string]string, codec byte) []byte {
	encoded := make(map[string]string, len(m))
	for key, value := range m {
		encoded[encodeColumn(key, codec)] = encodeColumn(value, codec)
	}
	for _, key := range slices.Sorted(maps.Keys(encoded)) {
		dst = append(dst, key...)
		dst = append(dst, '\t')
		dst = append(dst, encoded[key]...)
		dst = append(dst, '\n')
	}
	return dst
}

func encodeColumn(s string, codec byte) string {
	switch codec {
	case base64B:
		return base64.StdEncoding.EncodeToString([]byte(s))
	case urlU:
		return string(appendEscaped(nil, s, "0123456789abcdef"))
	}
	return s
}

func appendEscaped(dst []byte, s, digits string) []byte {
	for i := range len(s) {
		if c := s[i]; isPlainURL(c) {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		}
	}
	return dst
}

// writeTSV answers with m. Clients compare the media type's end, so nothing follows the attribute.
func writeTSV(w http.ResponseWriter, code int, m map[string]string) {
	codec, kind := chooseCodec(m), tsvType
	if codec != plain {
		kind += "; colenc=" + string(rune(codec))
	}
	writeBody(w, code, kind, appendTSV(nil, m, codec))
}
