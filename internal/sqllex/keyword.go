package sqllex

// A keyword is a word that the scanner looks for; 0 is any other word.
type keyword uint8

const (
	_ keyword = iota
	kwSelect
	kwFrom
	kwWhere
	kwGroup
	kwHaving
	kwOrder
	kwLimit
	kwWindow
	kwUnion
	kwIntersect
	kwExcept
	kwReturning
	kwSet
	kwValues
	kwWith
	kwRecursive
	kwAs
	kwNot
	kwMaterialized
	kwJoin
	kwStraightJoin
	kwLateral
	kwOnly
	kwUsing
	kwOn
	kwInto
	kwUpdate
	kwDelete
	kwInsert
	kwMerge
	kwReplace
	kwTruncate
	kwTable
	kwView
	kwIndex
	kwTemp
	kwTemporary
	kwIf
	kwExists
	kwFor
	kwNo
	kwKey
	kwShare
	kwLock
	kwIn
	kwMode
	kwTablesample
	kwRepeatable
	kwRepeat
	kwDistinct
	kwIs
	kwBegin
	kwStart
	kwTransaction
	kwWork
	kwCommit
	kwEnd
	kwRollback
	kwAbort
	kwSavepoint
	kwRelease
	kwPrepare
	kwPrepared
	kwTo
	kwAnd
	kwChain
	kwExplain
	kwDescribe
	kwDesc
	kwAnalyze
	kwAnalyse
	kwVerbose
	kwExtended
	kwPartitions
	kwQuery
	kwPlan
	kwFormat
	kwShow
	kwCall
	kwDo
	kwExecute
	kwExec
	kwCopy
	kwBinary
	kwLoad
	kwData
	kwXml
	kwCreate
	kwAlter
	kwDrop
	kwRename
	kwRefresh
	kwComment
	kwGrant
	kwRevoke
	kwVacuum
	kwReindex
	kwCluster
	kwCheckpoint
	kwOptimize
	kwRepair
	kwCheck
	kwChecksum
	kwKill
	kwNotify
	kwListen
	kwUnlisten
	kwReset
	kwDiscard
	kwUse
	kwPragma
	kwAttach
	kwDetach
	kwDeclare
	kwCursor
	kwMove
	kwFetch
	kwClose
	kwDeallocate
	kwHandler
	kwXa
	kwUnlock
	kwTrigger
	kwProcedure
	kwFunction
	kwEvent
	kwAtomic
	kwCase
	kwLoop
	kwWhile
	kwCascade
	kwAll
	kwIgnore
	kwLowPriority
	kwHighPriority
	kwDelayed
	kwConcurrent
	kwQuick
	kwOr
	kwFail
	kwRows
	kwOj
	kwPartition
	kwNext
	kwPrevious
	kwValue
	kwSqlCalcFoundRows
	kwOutfile
	kwDumpfile
	kwConcurrently
	kwDeferred
	kwImmediate
	kwExclusive
	kwIsolation
	kwRead
	kwDeferrable
	kwApply
	kwCross
	kwOuter
	kwAutocommit
	kwSession
	kwUnlogged
	kwGlobal
	kwLocal
	kwVirtual
	kwForeign
	kwExchange
	kwInherit
	kwSchema
	kwTran
	kwBy
	kwWithin
	kwBetween
	kwRow
	kwTables
	kwColumn
	kwDual
	kwImport
	kwSecurity
	kwReassign
	kwPackage
	kwHelp
	kwCast
	kwDefault
)

// keywords maps spelling to keyword, in the order of the constants.
var keywords = [...]string{
	kwSelect:           "select",
	kwFrom:             "from",
	kwWhere:            "where",
	kwGroup:            "group",
	kwHaving:           "having",
	kwOrder:            "order",
	kwLimit:            "limit",
	kwWindow:           "window",
	kwUnion:            "union",
	kwIntersect:        "intersect",
	kwExcept:           "except",
	kwReturning:        "returning",
	kwSet:              "set",
	kwValues:           "values",
	kwWith:             "with",
	kwRecursive:        "recursive",
	kwAs:               "as",
	kwNot:              "not",
	kwMaterialized:     "materialized",
	kwJoin:             "join",
	kwStraightJoin:     "straight_join",
	kwLateral:          "lateral",
	kwOnly:             "only",
	kwUsing:            "using",
	kwOn:               "on",
	kwInto:             "into",
	kwUpdate:           "update",
	kwDelete:           "delete",
	kwInsert:           "insert",
	kwMerge:            "merge",
	kwReplace:          "replace",
	kwTruncate:         "truncate",
	kwTable:            "table",
	kwView:             "view",
	kwIndex:            "index",
	kwTemp:             "temp",
	kwTemporary:        "temporary",
	kwIf:               "if",
	kwExists:           "exists",
	kwFor:              "for",
	kwNo:               "no",
	kwKey:              "key",
	kwShare:            "share",
	kwLock:             "lock",
	kwIn:               "in",
	kwMode:             "mode",
	kwTablesample:      "tablesample",
	kwRepeatable:       "repeatable",
	kwRepeat:           "repeat",
	kwDistinct:         "distinct",
	kwIs:               "is",
	kwBegin:            "begin",
	kwStart:            "start",
	kwTransaction:      "transaction",
	kwWork:             "work",
	kwCommit:           "commit",
	kwEnd:              "end",
	kwRollback:         "rollback",
	kwAbort:            "abort",
	kwSavepoint:        "savepoint",
	kwRelease:          "release",
	kwPrepare:          "prepare",
	kwPrepared:         "prepared",
	kwTo:               "to",
	kwAnd:              "and",
	kwChain:            "chain",
	kwExplain:          "explain",
	kwDescribe:         "describe",
	kwDesc:             "desc",
	kwAnalyze:          "analyze",
	kwAnalyse:          "analyse",
	kwVerbose:          "verbose",
	kwExtended:         "extended",
	kwPartitions:       "partitions",
	kwQuery:            "query",
	kwPlan:             "plan",
	kwFormat:           "format",
	kwShow:             "show",
	kwCall:             "call",
	kwDo:               "do",
	kwExecute:          "execute",
	kwExec:             "exec",
	kwCopy:             "copy",
	kwBinary:           "binary",
	kwLoad:             "load",
	kwData:             "data",
	kwXml:              "xml",
	kwCreate:           "create",
	kwAlter:            "alter",
	kwDrop:             "drop",
	kwRename:           "rename",
	kwRefresh:          "refresh",
	kwComment:          "comment",
	kwGrant:            "grant",
	kwRevoke:           "revoke",
	kwVacuum:           "vacuum",
	kwReindex:          "reindex",
	kwCluster:          "cluster",
	kwCheckpoint:       "checkpoint",
	kwOptimize:         "optimize",
	kwRepair:           "repair",
	kwCheck:            "check",
	kwChecksum:         "checksum",
	kwKill:             "kill",
	kwNotify:           "notify",
	kwListen:           "listen",
	kwUnlisten:         "unlisten",
	kwReset:            "reset",
	kwDiscard:          "discard",
	kwUse:              "use",
	kwPragma:           "pragma",
	kwAttach:           "attach",
	kwDetach:           "detach",
	kwDeclare:          "declare",
	kwCursor:           "cursor",
	kwMove:             "move",
	kwFetch:            "fetch",
	kwClose:            "close",
	kwDeallocate:       "deallocate",
	kwHandler:          "handler",
	kwXa:               "xa",
	kwUnlock:           "unlock",
	kwTrigger:          "trigger",
	kwProcedure:        "procedure",
	kwFunction:         "function",
	kwEvent:            "event",
	kwAtomic:           "atomic",
	kwCase:             "case",
	kwLoop:             "loop",
	kwWhile:            "while",
	kwCascade:          "cascade",
	kwAll:              "all",
	kwIgnore:           "ignore",
	kwLowPriority:      "low_priority",
	kwHighPriority:     "high_priority",
	kwDelayed:          "delayed",
	kwConcurrent:       "concurrent",
	kwQuick:            "quick",
	kwOr:               "or",
	kwFail:             "fail",
	kwRows:             "rows",
	kwOj:               "oj",
	kwPartition:        "partition",
	kwNext:             "next",
	kwPrevious:         "previous",
	kwValue:            "value",
	kwSqlCalcFoundRows: "sql_calc_found_rows",
	kwOutfile:          "outfile",
	kwDumpfile:         "dumpfile",
	kwConcurrently:     "concurrently",
	kwDeferred:         "deferred",
	kwImmediate:        "immediate",
	kwExclusive:        "exclusive",
	kwIsolation:        "isolation",
	kwRead:             "read",
	kwDeferrable:       "deferrable",
	kwApply:            "apply",
	kwCross:            "cross",
	kwOuter:            "outer",
	kwAutocommit:       "autocommit",
	kwSession:          "session",
	kwUnlogged:         "unlogged",
	kwGlobal:           "global",
	kwLocal:            "local",
	kwVirtual:          "virtual",
	kwForeign:          "foreign",
	kwExchange:         "exchange",
	kwInherit:          "inherit",
	kwSchema:           "schema",
	kwTran:             "tran",
	kwBy:               "by",
	kwWithin:           "within",
	kwBetween:          "between",
	kwRow:              "row",
	kwTables:           "tables",
	kwColumn:           "column",
	kwDual:             "dual",
	kwImport:           "import",
	kwSecurity:         "security",
	kwReassign:         "reassign",
	kwPackage:          "package",
	kwHelp:             "help",
	kwCast:             "cast",
	kwDefault:          "default",
}
