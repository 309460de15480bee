//! Go's kinds of values.

use std::fmt;

macro_rules! kinds {
    ($($doc:literal $kind:ident $name:literal;)*) => {
        /// What Go's `reflect.Kind` calls a value; prints as Go does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $(#[doc = $doc] $kind,)*
        }

        impl Kind {
            /// Go's name, as Sprig's `kindOf` shows it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    "The untyped nil." Invalid "invalid";
    "`bool`" Bool "bool";
    "`int`" Int "int";
    "`int32`" Int32 "int32";
    "`int64`" Int64 "int64";
    "`uint8`" Uint8 "uint8";
    "`uint32`" Uint32 "uint32";
    "`uint64`" Uint64 "uint64";
    "`float64`" Float64 "float64";
    "`complex128`" Complex128 "complex128";
    "`string`" String "string";
    "Lists and bytes." Slice "slice";
    "Maps." Map "map";
    "Host types that are structs." Struct "struct";
    "Host types that are pointers to structs." Ptr "ptr";
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
