package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// longestValue is how much of a value of the wrong type is told.
const longestValue = 60

// wrongType puts an error about a value of the wrong type into words of the configuration: the key, what it
// holds and what it should. Other errors stay as they are.
func wrongType(text []byte, err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	path := strings.Split(wrong.Field, ".")
	key := path[len(path)-1] // before it are Go's names of what is embedded
	value := text
	if key != "" {
		var object map[string]json.RawMessage
		_ = json.Unmarshal(text, &object) // deeper inside it is not found
		value = object[key]
		key += ": "
	}
	given := string(value)
	if given == "" || len(given) > longestValue {
		given = "a " + wrong.Value
	}
	return fmt.Errorf("%s%s is not %s", key, given, wanted(wrong.Type))
}

// wanted is what JSON has to hold for a Go type.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return wanted(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a whole number"
}
