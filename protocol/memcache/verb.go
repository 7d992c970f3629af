package memcache

// verb is the first word of a command line.
type verb uint8

const (
	verbUnknown verb = iota
	verbNone         // an empty line
	verbSet
	verbAdd
	verbReplace
	verbAppend
	verbPrepend
	verbCas
	verbGet
	verbGets
	verbGat
	verbGats
	verbDelete
	verbTouch
	verbIncr
	verbDecr
	verbStats
	verbDumpStats
	verbVersion
	verbVerbosity
	verbFlushAll
	verbFlush
	verbQuit
	verbMetaGet
	verbMetaSet
	verbMetaDelete
	verbMetaArithmetic
	verbNoop
	verbMetaDebug
	verbHTTP // an HTTP request: closed
)

// verbOf is the verb that word is, in lower or upper case.
func verbOf(word []byte) verb {
	if v := lowerVerb(word); v != verbUnknown {
		return v
	}
	var lower [16]byte
	if len(word) > len(lower) {
		return verbUnknown
	}
	for i, b := range word {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		lower[i] = b
	}
	return lowerVerb(lower[:len(word)])
}

func lowerVerb(word []byte) verb {
	switch string(word) {
	case "":
		return verbNone
	case "set":
		return verbSet
	case "get":
		return verbGet
	case "gets":
		return verbGets
	case "delete":
		return verbDelete
	case "add":
		return verbAdd
	case "replace":
		return verbReplace
	case "append":
		return verbAppend
	case "prepend":
		return verbPrepend
	case "cas":
		return verbCas
	case "gat":
		return verbGat
	case "gats":
		return verbGats
	case "touch":
		return verbTouch
	case "incr":
		return verbIncr
	case "decr":
		return verbDecr
	case "stats":
		return verbStats
	case "dump_stats":
		return verbDumpStats
	case "version":
		return verbVersion
	case "verbosity":
		return verbVerbosity
	case "flush_all":
		return verbFlushAll
	case "flush":
		return verbFlush
	case "quit":
		return verbQuit
	case "mg":
		return verbMetaGet
	case "ms":
		return verbMetaSet
	case "md":
		return verbMetaDelete
	case "ma":
		return verbMetaArithmetic
	case "mn":
		return verbNoop
	case "me":
		return verbMetaDebug
	}
	return verbUnknown
}
