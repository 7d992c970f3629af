package admin

import (
	"maps"
	"strings"
	"testing"
)

func TestDecodeTSV(t *testing.T) {
	type m = map[string]string
	for _, tt := range []struct {
		name, header, body string
		want               m
	}{
		{"plain", tsvType, "a\tb\nc\td\n", m{"a": "b", "c": "d"}},
		{"no last LF", tsvType, "a\tb\nc\td", m{"a": "b", "c": "d"}},
		{"CRLF", tsvType, "a\tb\r\nc\t\r\n", m{"a": "b", "c": ""}},
		{"lines without TAB", tsvType, "x\n\na\tb\n\r\ny", m{"a": "b"}},
		{"TABs in a plain value", tsvType, "a\tb\tc\n", m{"a": "b\tc"}},
		{"empty key", tsvType, "\tv\n", m{"": "v"}},
		{"last counts", tsvType, "a\t1\na\t2\n", m{"a": "2"}},
		{"plain keeps escapes", tsvType, "a%41\tb+=41\n", m{"a%41": "b+=41"}},
		{"high bytes", tsvType, "\xff\x00\tü\n", m{"\xff\x00": "ü"}},
		{"B", tsvType + "; colenc=B", "Zm9v\tYmFy\nYQ==\t\n", m{"foo": "bar", "a": ""}},
		{"B unpadded, broken", tsvType + ";colenc=B", "YQ\tYm F-y\nYWI\tYWJjZ\n", m{"a": "bar", "ab": "abc"}},
		{"B ends at padding", tsvType + "; colenc=B", "YQ==YQ==\tYQ\n", m{"a": "a"}},
		{"U", tsvType + "; colenc=U", "a%01\t%E3%81%82+%2b\n", m{"a\x01": "\u3042 +"}},
		{"U drops raw blanks", tsvType + "; colenc=U", " a \tb\x01c\xff\n", m{"a": "bc\xff"}},
		{"U broken", tsvType + "; colenc=U", "a%\tb%4\nc%zz\t%%41\n", m{"a%": "b%4", "c%zz": "%A"}},
		{"Q", tsvType + "; colenc=Q", "a=3D\tb =e3=81=82+=\n", m{"a=": "b \u3042+="}},
		{"quoted, lower case", "TEXT/Tab-Separated-Values; colenc=\"b\"", "Zm9v\tYmFy", m{"foo": "bar"}},
		{"behind another attribute", tsvType + " ; charset=utf-8 ; ColEnc=u", "a\t%41", m{"a": "A"}},
		{"unknown codec", tsvType + "; colenc=X", "a\t%41", m{"a": "%41"}},
		{"form", formType + "; charset=utf-8", " a=1&b=%41+c;d&=e&a=2\r\n&&x=y=z", m{"a": "2", "b": "A c", "d": "", "": "e", "x": "y=z"}},
		{"foreign type", "application/json", "a\tb\n", m{}},
		{"no type", "", "a\tb\n", m{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := m{}
			switch kind, codec := mediaType(tt.header); kind {
			case tsvType:
				decodeTSV(got, tt.body, codec)
			case formType:
				decodeForm(got, tt.body)
			}
			if !maps.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestEncodeTSV(t *testing.T) {
	type m = map[string]string
	long := strings.Repeat("a", 256)
	for _, tt := range []struct {
		name  string
		m     m
		codec byte
		want  string
	}{
		{"empty", m{}, plain, ""},
		{"sorted by bytes", m{"b": "1", "a": "2", "B": "3", "ab": "4", "é": "5"}, plain, "B\t3\na\t2\nab\t4\nb\t1\né\t5\n"},
		{"255 bytes", m{"k": long[:255]}, plain, "k\t" + long[:255] + "\n"},
		{"256 bytes of text", m{"k": long}, urlU, "k\t" + long + "\n"},
		{"256 bytes of key", m{long: ""}, urlU, long + "\t\n"},
		{"high bytes are plain", m{"k": "\x80\xff "}, plain, "k\t\x80\xff \n"},
		{"TAB", m{"k": "long enough text\t"}, urlU, "k\tlong%20enough%20text%09\n"},
		{"DEL", m{"key\x7f": "value~"}, urlU, "key%7f\tvalue~\n"},
		{"binary", m{"k": "\x00\x01\x02\x03\xff"}, base64B, "aw==\tAAECA/8=\n"},
		{"both columns alike", m{"\x00\x00\x00\x00\x00": "abc"}, base64B, "AAAAAAA=\tYWJj\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := chooseCodec(tt.m); got != tt.codec {
				t.Errorf("codec: got %q, want %q", got, tt.codec)
			}
			if got := string(appendTSV(nil, tt.m, tt.codec)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// FuzzTSV reads any bytes by any codec, and what was read survives being written and read again.
func FuzzTSV(f *testing.F) {
	f.Add("text/tab-separated-values; colenc=B", "Zm9v\tYmFy\n")
	f.Add("text/tab-separated-values; colenc=\"u\"", "a%01\t%zz+\r\n\t\n")
	f.Add("text/tab-separated-values;colenc=Q", "=41=\t=\n=4\t")
	f.Add("application/x-www-form-urlencoded", "a=%00&b;c==&%=%4")
	f.Add("text/tab-separated-values", "a\t\x01\nb\tb\tb")
	f.Fuzz(func(t *testing.T, header, body string) {
		read := map[string]string{}
		if kind, codec := mediaType(header); kind == formType {
			decodeForm(read, body)
		} else {
			decodeTSV(read, body, codec)
		}
		size := 0
		for key, value := range read {
			size += len(key) + len(value)
		}
		if size > len(body) {
			t.Fatalf("%d bytes out of %d", size, len(body))
		}
		for _, codec := range []byte{chooseCodec(read), base64B, urlU} {
			again := map[string]string{}
			decodeTSV(again, string(appendTSV(nil, read, codec)), codec)
			if !maps.Equal(again, read) {
				t.Errorf("codec %q: got %q, want %q", codec, again, read)
			}
		}
	})
}
